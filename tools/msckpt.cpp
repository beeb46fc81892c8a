// msckpt: looks at, checks, compares and transforms checkpoints (ckpt/README.md).
//
//   msckpt VERB ... [flags]     verbs: inspect, plan, verify, reshard, merge, convert, families, diff, gc
//
// The command line. Results go to stdout (the path made, a table, JSON), everything else to the log.

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "convert/script_flags.h"
#include "core/comm/agree.h"
#include "core/comm/communicator.h"
#include "core/comm/launcher.h"
#include "core/error.h"
#include "core/log.h"
#include "core/signals.h"
#include "tools/command_line.h"
#include "tools/guard.h"
#include "tools/msckpt_verbs.h"

namespace {

using namespace ms::tools::msckpt;
using ms::core::Error;
namespace convert = ms::convert;
namespace core = ms::core;

void add_load_dir(CLI::App& verb, Flags& flags) {
  verb.add_option("--load-dir", flags.load_dir,
                  "Checkpoint root (the newest is taken) or directory; - reads it from stdin")
      ->required();
}

void add_target_flags(CLI::App& verb, Flags& flags) {
  verb.add_option("--target-tensor-parallel-size", flags.target.tensor_model_parallel_size, "TP of the result (1)");
  verb.add_option("--target-pipeline-parallel-size", flags.target.pipeline_model_parallel_size, "PP of the result (1)");
  verb.add_option("--num-layers-per-virtual-pipeline-stage", flags.num_layers_per_virtual_pipeline_stage,
                  "Layers in each chunk of the result's stages (one chunk)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--target-data-parallel-size", flags.target.data_parallel_size, "DP of the result (1)");
  verb.add_option("--target-expert-parallel-size", flags.target.expert_model_parallel_size, "EP of the result (1)");
  verb.add_option("--expert-tensor-parallel-size", flags.expert_tensor_parallel_size,
                  "Ranks that share an expert of the result (TP)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--num-layer-list", flags.target.num_layer_list,
                  "Layers of each stage of the result: 3,4,4,3 (evenly)")
      ->delimiter(',');
  verb.add_option("--decoder-first-pipeline-num-layers", flags.first_num_layers,
                  "Layers of the result's first stage, the others share the rest (evenly)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--decoder-last-pipeline-num-layers", flags.last_num_layers, "Layers of the result's last stage")
      ->check(CLI::PositiveNumber);
  verb.add_option("--target-zero-stage", flags.target.zero_stage,
                  "What is spread over DP: 1, 2 optimizer state, 3 parameters too (0)")
      ->check(CLI::Range(0, 3));
  verb.add_flag_callback(
      "--target-use-distributed-optimizer", [&flags] { flags.target.zero_stage = 1; },
      "The same as --target-zero-stage 1");
  verb.add_option("--params-dtype", flags.params_dtype, "fp32, bf16 or fp16 for parameters (as the source has them)");
}

void add_drop_optimizer(CLI::App& verb, Flags& flags) {
  verb.add_flag("--drop-optimizer", flags.drop_optimizer, "Leave out master weights and moments");
}

// What is wrong with a layout is said in the trainer's flags; here they are of the target.
Error in_flags_of_targets(const Error& error) {
  if (error.code() != ms::core::ErrorCode::kInvalidArgument) return error;
  std::string text = error.what();
  for (const std::string size : {"tensor", "pipeline", "expert"}) {
    const std::string theirs = "--" + size + "-model-parallel-size", ours = "--target-" + size + "-parallel-size";
    for (size_t at = 0; (at = text.find(theirs, at)) != std::string::npos; at += ours.size()) {
      text.replace(at, theirs.size(), ours);
    }
  }
  return Error(error.code(), text);
}

// Flags of the converters that users come from: of the same meaning as one of ours, or of none.
void add_script_flags(CLI::App& verb, Flags& flags) {
  const char* group = "Flags of MindSpeed-LLM's and Megatron's script lines";
  const std::map<std::string, std::string> impls = {{"local", "local"}, {"transformer_engine", "te"}};
  verb.add_option("--transformer-impl,--saver-transformer-impl", flags.target_norm_naming,
                  "local or transformer_engine: --target-norm-naming local or te")
      ->transform(CLI::Transformer(impls))
      ->check(CLI::IsMember({"local", "te"}))
      ->group(group);
  const std::map<std::string, std::string> savers = {{"core", "mg"}, {"mcore", "mg"}, {"megatron", "mg"}};
  verb.add_option("--saver", flags.save_model_type, "core, mcore or megatron: --save-model-type mg")
      ->transform(CLI::CheckedTransformer(savers))
      ->group(group);
  for (const char* dtype : {"bf16", "fp16"}) {
    verb.add_flag_callback(
            core::cat("--", dtype), [&flags, dtype] { flags.dtype = dtype; }, core::cat("--dtype ", dtype))
        ->group(group);
  }
  verb.add_option_function<std::string>(
          "--model-type", [](const std::string&) {}, "GPT: there are no others")
      ->check(CLI::IsMember({"GPT"}))
      ->group(group);
  verb.add_option("--num-layers", flags.claims.num_layers, "What the model has, or this is an error")->group(group);
  verb.add_option("--first-k-dense-replace", flags.claims.first_k_dense_replace, "The same")->group(group);
  verb.add_option("--mtp-num-layers", flags.claims.mtp_num_layers, "The same")->group(group);
  for (const convert::ScriptFlag& flag : convert::script_flags()) {
    const std::string help =
        core::cat(flag.use == convert::ScriptFlagUse::kRefused ? "refused: " : "changes nothing: ", flag.why);
    const auto take = [&flags, name = flag.name] { flags.script_flags.emplace_back(name); };
    if (flag.values == 0) {
      verb.add_flag_callback(flag.name, take, help)->group(group);
      continue;
    }
    CLI::Option* option = verb.add_option_function<std::vector<std::string>>(
        flag.name, [take](const std::vector<std::string>&) { take(); }, help);
    option->expected(flag.values == convert::kManyValues ? 1 : flag.values,
                     flag.values == convert::kManyValues ? CLI::detail::expected_max_vector_size : flag.values);
    option->group(group);
  }
}

using Verb = int (*)(const Flags&);

// One of the processes that a launcher has started: the long verbs are shared among them, the first does the rest.
int run_as_rank(Flags& flags, Verb verb, std::unique_ptr<ms::core::RankSession>& session) {
  constexpr double kPatienceS = 30 * 86400;  // one may have much more to write than another
  session = ms::core::load_mpi_session();
  ms::core::Endpoint endpoint(session->transport(), {.timeout_s = kPatienceS});
  ms::core::set_log_rank(endpoint.rank(), false);
  std::vector<int> ranks(static_cast<size_t>(endpoint.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  ms::core::Communicator team(endpoint, "team", ranks, 1);
  flags.threads = std::max(1, flags.threads / session->local_size());
  if (verb == run_reshard || verb == run_verify) {
    flags.team = &team;
    return verb(flags);
  }
  return endpoint.rank() == 0 ? verb(flags) : 0;
}

int run(const std::vector<std::string>& args, std::unique_ptr<ms::core::RankSession>& session) {
  CLI::App app("Looks at, checks, compares, reshards and converts checkpoints", "msckpt");
  app.require_subcommand(1);
  Flags flags;
  std::vector<std::pair<CLI::App*, Verb>> verbs;
  const auto add_verb = [&](const char* name, const char* help, Verb body) {
    CLI::App* verb = app.add_subcommand(name, help);
    verb->add_flag("--json", flags.json, "Print JSON, schema msckpt/1");
    verbs.emplace_back(verb, body);
    return verb;
  };
  const auto add_paths = [&](CLI::App* verb, const char* help) {
    verb->add_option("path", flags.paths, help)->required();
  };
  const auto add_threads = [&](CLI::App* verb) {
    verb->add_option("--threads", flags.threads, "Threads that read and write, of all processes of a machine")
        ->check(CLI::Range(1, 256));
  };

  const auto add_memory = [&](CLI::App* verb) {
    verb->add_option("--mem", flags.mem_mib, "Memory of the copy in MiB, at least 64 (256)")
        ->check(CLI::Range(64, 1 << 20));
  };

  CLI::App* inspect = add_verb("inspect", "what is in a checkpoint: layout, model, tensors", run_inspect);
  add_paths(inspect, "Checkpoint roots or directories, or - for a list of them on stdin");
  inspect->add_flag("--tensors", flags.tensors, "A line for every tensor");
  inspect->add_option("--tensor", flags.tensor, "Statistics and a histogram of this tensor, in every role it has");

  CLI::App* verify =
      add_verb("verify", "check every hash; prints the path of what is whole, exit 3 if anything is not", run_verify);
  add_paths(verify, "Checkpoint roots (the newest is taken) or directories, or - for a list of them on stdin");
  verify->add_flag("--fast", flags.fast, "Only manifest, file sizes and coverage");
  verify->add_flag("--all", flags.all, "Every checkpoint of a root");
  verify->add_option("--against", flags.against,
                     "Instead: that they hold the same as this checkpoint, whatever formats and layouts they all have");
  verify->add_flag("--drop-optimizer", flags.drop_optimizer, "With --against: weights only");
  add_threads(verify);

  const auto add_writing = [&](CLI::App* verb) {
    verb->add_flag("--compress", flags.compress,
                   "Byte shuffle and zstd in a result of ours: 1.2 times smaller in fp32");
    verb->add_option("--write-path", flags.write_path,
                     "io_uring, direct, buffered or auto: how a ms, mg, dist, dcp or ucp result is written")
        ->check(CLI::IsMember({"auto", "io_uring", "direct", "buffered"}));
  };

  CLI::App* gc = add_verb("gc", "remove what dead writers left, and generations that a rule gives up", run_gc);
  add_paths(gc, "Checkpoint roots");
  gc->add_option("--keep-last", flags.retention.keep_last, "Newest generations to keep (all)")
      ->check(CLI::PositiveNumber);
  gc->add_option("--retain-interval", flags.retention.retain_interval,
                 "Keep the newest, and iterations that are multiples of this (all)")
      ->check(CLI::PositiveNumber);
  gc->add_flag("--dry-run", flags.dry_run, "Only say what would go");

  CLI::App* diff = add_verb("diff", "compare two checkpoints of any layouts; exit 10 if they differ", run_diff);
  add_paths(diff, "Two checkpoint roots or directories");

  CLI::App* plan = add_verb("plan", "print the copies that a reshard would make, one a line", run_plan);
  add_load_dir(*plan, flags);
  add_target_flags(*plan, flags);
  add_drop_optimizer(*plan, flags);

  CLI::App* reshard =
      add_verb("reshard", "write a checkpoint for other parallel sizes, optimizer state included", run_reshard);
  add_load_dir(*reshard, flags);
  add_target_flags(*reshard, flags);
  add_drop_optimizer(*reshard, flags);
  reshard->add_option("--save-dir", flags.save_dir, "Root of the new checkpoint; its path is printed");
  add_memory(reshard);
  add_writing(reshard);
  reshard->add_flag("--resume", flags.resume,
                    "Go on where the same command was stopped; when stopped, leave what is finished");
  reshard->add_flag("--dry-run", flags.dry_run, "Only say what would be done");
  add_threads(reshard);

  CLI::App* merge = add_verb("merge", "average the parameters of several checkpoints of one model", run_merge);
  add_paths(merge, "Checkpoint roots or directories, of any layouts, or - for a list of them on stdin");
  merge
      ->add_option("--weights", flags.weights,
                   "One a checkpoint: 0.7,0.3; they are divided by their sum (all the same)")
      ->delimiter(',');
  add_target_flags(*merge, flags);
  merge->add_option("--save-dir", flags.save_dir, "Root of the new checkpoint; its path is printed");
  add_memory(merge);
  add_writing(merge);
  merge->add_flag("--dry-run", flags.dry_run, "Only say what would be done");
  add_threads(merge);

  CLI::App* convert = add_verb(
      "convert",
      "turn a model's folder or checkpoint (Hugging Face, Megatron, FSDP, DeepSpeed, Meta, ours) into another format",
      run_convert);
  convert
      ->add_option("--load-dir", flags.load_dir, "Folder to read; its format is told by content; - reads it from stdin")
      ->required();
  convert->add_option("--save-dir", flags.save_dir, "Folder to make; the path made is printed");
  convert->add_option("--load-model-type", flags.load_model_type,
                      "hf, mg (Megatron, MindSpeed-LLM), dist (Megatron's torch_dist), dcp (PyTorch), ds (DeepSpeed), "
                      "ucp (its universal checkpoints), meta (consolidated.*.pth) or ms, instead of looking");
  convert->add_option("--save-model-type", flags.save_model_type,
                      "hf, mg, dist, dcp, ucp, gguf or ms (hf of a ms source, else ms)");
  convert->add_option("--target-tensor-parallel-size", flags.target.tensor_model_parallel_size,
                      "TP of a ms, mg or dist result (1)");
  convert->add_option("--target-pipeline-parallel-size", flags.target.pipeline_model_parallel_size,
                      "PP of a ms, mg or dist result (1)");
  convert
      ->add_option("--target-data-parallel-size", flags.target.data_parallel_size,
                   "Ranks of FSDP that a dcp result is cut for, a file for each (1)")
      ->check(CLI::Range(1, 1 << 20));
  convert
      ->add_option("--num-layers-per-virtual-pipeline-stage", flags.num_layers_per_virtual_pipeline_stage,
                   "Layers in each chunk of a ms, mg or dist result's stages (one chunk)")
      ->check(CLI::PositiveNumber);
  convert
      ->add_option("--num-layer-list", flags.target.num_layer_list,
                   "Layers of each stage of a ms, mg or dist result: 3,4,4,3 (evenly)")
      ->delimiter(',');
  convert
      ->add_option("--target-expert-parallel-size,--target-expert-model-parallel-size",
                   flags.target.expert_model_parallel_size, "EP of a ms, mg or dist result (1)")
      ->check(CLI::PositiveNumber);
  convert
      ->add_option("--noop-layers", flags.extras.noop_layers,
                   "No-op layers of MindSpeed-LLM's, 2,7, among all layers of a mg result, or of a mg source that does "
                   "not say so (none)")
      ->delimiter(',');
  convert
      ->add_option_function<std::string>(
          "--schedules-method", [&flags](const std::string&) { flags.extras.dualpipev = true; },
          "dualpipev: layers of a mg result lie in a V, two chunks a stage; or of a mg source that does not say so")
      ->check(CLI::IsMember({"dualpipev"}));
  convert
      ->add_option("--expert-tensor-parallel-size", flags.expert_tensor_parallel_size,
                   "Ranks that share an expert of a ms, mg or dist result (TP)")
      ->check(CLI::PositiveNumber);
  convert->add_flag("--moe-tp-extend-ep", flags.moe_tp_extend_ep,
                    "Experts of a ms, mg or dist result are dealt, whole, to EP x TP ranks");
  convert->add_flag("--moe-grouped-gemm", flags.moe_grouped_gemm,
                    "Experts of a mg or dist result are those of grouped layers, named as --target-norm-naming says");
  convert->add_option("--dtype,--params-dtype", flags.dtype,
                      "fp32, bf16 or fp16 for all weights, of a gguf result q8_0 too (as the source has them)");
  convert->add_option("--max-shard-size", flags.max_shard_size, "Largest file of a hf result (5GB)");
  convert
      ->add_option("--true-vocab-size", flags.true_vocab_size,
                   "Rows of a Megatron source's vocabulary that are no padding (what its args say)")
      ->check(CLI::PositiveNumber);
  convert->add_option(
      "--target-norm-naming", flags.target_norm_naming,
      "Norms of a mg result are called as by megatron-core's own layers, local, or Transformer Engine's, te (local); "
      "whose modules have a state of their own in a dist result (te)");
  convert->add_option(
      "--mg-args", flags.mg_args,
      "What args of a mg or dist result are: namespace, dict or omit (namespace, as Megatron wants it)");
  convert->add_flag("--use-distributed-optimizer", flags.use_distributed_optimizer,
                    "Optimizer state of a mg or dist result is the distributed optimizer's");
  convert
      ->add_option("--make-vocab-size-divisible-by", flags.make_vocab_size_divisible_by,
                   "The vocabulary of a mg or dist result is padded to a multiple of this x TP (as the model says)")
      ->check(CLI::PositiveNumber);
  convert->add_option("--hf-cfg-dir", flags.hf_cfg_dir,
                      "config.json and tokenizer files of a hf or gguf result come from here; of a dcp, ds, ucp or "
                      "meta source, and a dcp or ucp result, the config.json");
  convert->add_option("--model-type-hf", flags.claims.model_type_hf,
                      "Family of the source and of a hf, dcp, ucp or gguf result, by MindSpeed-LLM's name or that of "
                      "msckpt families (what the source says, or else the first that can say the model)");
  convert->add_option("--lora", flags.lora, "Folder of a LoRA adapter of PEFT that is merged into the weights");
  convert->add_option("--name-map", flags.name_map,
                      "JSON file: what the tensors of a hf source or result are called, for a family of your own");
  convert->add_flag("--drop-optimizer", flags.drop_optimizer, "Leave out master weights and moments");
  add_memory(convert);
  add_writing(convert);
  add_script_flags(*convert, flags);
  convert->add_flag("--dry-run", flags.dry_run, "Only say what would be done");
  add_threads(convert);

  add_verb("families", "the families of Hugging Face models that convert knows", run_families);

  if (!ms::tools::parse(app, args)) return 0;
  const auto chosen = std::find_if(verbs.begin(), verbs.end(), [](const auto& v) { return v.first->parsed(); });
  try {
    if (!ms::core::launched_by_mpi() || ms::core::started_by_a_rank()) return chosen->second(flags);
    return run_as_rank(flags, chosen->second, session);
  } catch (const ms::core::AgreedError&) {
    throw;
  } catch (const Error& e) {
    throw in_flags_of_targets(e).within(chosen->first->get_name());
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // large blocks go back to the system at once: --mem is of what is resident
  ms::core::install_termination_handlers();
  std::unique_ptr<ms::core::RankSession> session;
  return ms::tools::run_guarded(
      "msckpt", [&] { return run(ms::tools::arguments(argc, argv), session); },
      [&](int exit_code) {
        if (session) session->abort(exit_code);
      });
}
