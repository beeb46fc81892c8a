#include "tools/msckpt/convert.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/inspect.h"
#include "convert/convert.h"
#include "core/error.h"
#include "core/log.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"
#include "tools/msckpt/layout_flags.h"
#include "tools/msckpt/proof.h"
#include "tools/msckpt/write_flags.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

struct ConvertFlags {
  convert::ConvertOptions options;  // set directly by CLI11
  bool json = false;
  std::string load_model_type, save_model_type, dtype, max_shard_size, target_norm_naming, mg_args;
  LayoutFlags layout;
  WriteFlags write;
};

// Flags of other converters' scripts: each has the meaning of one of ours, or none.
void add_script_flags(CLI::App& verb, ConvertFlags& flags) {
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
  verb.add_option("--num-layers", flags.options.claims.num_layers, "Layers: what the model has, or this is an error")
      ->group(group);
  verb.add_option("--first-k-dense-replace", flags.options.claims.first_k_dense_replace,
                  "Dense layers before the first with experts: what the model has, or this is an error")
      ->group(group);
  verb.add_option("--mtp-num-layers", flags.options.claims.mtp_num_layers,
                  "Layers of multi-token prediction: what the model has, or this is an error")
      ->group(group);
  for (const convert::ScriptFlag& flag : convert::script_flags()) {
    const std::string help =
        core::cat(flag.use == convert::ScriptFlagUse::kRefused ? "refused: " : "changes nothing: ", flag.why);
    const auto take = [&flags, name = flag.name] { flags.options.script_flags.emplace_back(name); };
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

void add_format_flags(CLI::App& verb, ConvertFlags& flags) {
  verb.add_option(
      "--load-model-type,--from", flags.load_model_type,
      "Format of the source: hf (Hugging Face), mg (Megatron, MindSpeed-LLM), dist (Megatron's torch_dist), "
      "dcp (PyTorch), ds (DeepSpeed), ucp (its universal checkpoints), meta (consolidated.*.pth), fsdp (files of "
      "its ranks), file (one file of tensors) or ms (ours) (what the content says)");
  verb.add_option(
      "--save-model-type,--to", flags.save_model_type,
      "Format of the result: hf, hf-bin (pytorch_model.bin), file (--save-dir is one .safetensors, .pt or .bin "
      "file), mg, dist, dcp, ucp, gguf or ms (ms; hf of a ms source or of one without a family)");
  verb.add_option("--dtype,--params-dtype", flags.dtype,
                  "Element type of all weights: fp32, bf16 or fp16; for a gguf result also q8_0 (as the source has "
                  "them)");
  verb.add_flag("--drop-optimizer", flags.options.drop_optimizer, "Leave out master weights and moments");
}

void add_optimizer_flags(CLI::App& verb, convert::OptimizerFlags& flags) {
  convert::OptimizerFlags::fields([&](std::string name, auto member, const char* help) {
    std::replace(name.begin(), name.end(), '_', '-');
    verb.add_option("--" + name, flags.*member, cat(help, " (the source's)"))
        ->group("Settings of the optimizer's state");
  });
}

void add_hugging_face_flags(CLI::App& verb, convert::ConvertOptions& options, std::string& max_shard_size) {
  verb.add_option("--hf-cfg-dir", options.hf_cfg_dir,
                  "Folder whose config.json and tokenizer files go into a hf or gguf result; its config.json says the "
                  "model of a dcp, ds, ucp, meta or fsdp source, and of a dcp or ucp result (the source's own)");
  verb.add_option("--model-type-hf", options.claims.model_type_hf,
                  "Family of the source, and of a hf, dcp, ucp or gguf result: MindSpeed-LLM's name or one of msckpt "
                  "families (what the source says, or the first family that can hold the model)");
  verb.add_option("--name-map", options.name_map,
                  "JSON file that says what the tensors and config.json keys of a hf source or result mean, for a "
                  "family of your own; msckpt families --explain NAME prints one to start from (the built-in family)");
  verb.add_option("--passthrough", options.passthrough,
                  "Regular expression: keep tensors of a hf source that no family names, under their own names (those "
                  "of known models around a language model, such as vision towers, are kept without it)");
  verb.add_flag("--drop-passthrough", options.drop_passthrough,
                "Leave out tensors that no family names: write the language model alone");
  verb.add_option("--passthrough-from", options.passthrough_from,
                  "Hugging Face folder whose vision tensors are added: the model around the language model that a run "
                  "of mstrain or Megatron, which save the language model alone, began with (none)");
  verb.add_option("--lora", options.lora, "Folder of a PEFT LoRA adapter to merge into the weights");
  verb.add_option("--max-shard-size", max_shard_size,
                  "Largest file of a hf or hf-bin result, such as 5GB or 500MB (a hf result: as the folder of its "
                  "config.json is split, else 5GB)");
}

// For sources without a family, or with --as-named.
void add_name_flags(CLI::App& verb, convert::ConvertOptions& options) {
  verb.add_flag(
      "--as-named", options.as_named,
      "Keep the names of the source's tensors, whatever the model is (implied by sources of no known family)");
  verb.add_option(
          "--rename", options.names.rename,
          "REGEX=TEMPLATE, for example ^module\\.= or ^h\\.(.*)=layers.$1: replace what the ECMAScript expression "
          "matches in names; repeatable, applied in order")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option("--include", options.names.include,
                  "REGEX: take only tensors whose names it matches in any place (all); repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option("--exclude", options.names.exclude,
                  "REGEX: leave out tensors whose names it matches in any place (none); repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_megatron_flags(CLI::App& verb, ConvertFlags& flags) {
  convert::ConvertOptions& options = flags.options;
  verb.add_option("--true-vocab-size", options.true_vocab_size,
                  "Rows of a Megatron source's vocabulary that are not padding (what its args say)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--noop-layers", options.extras.noop_layers,
                  "MindSpeed-LLM's no-op layers, for example 2,7, among all layers of a mg result, or of a mg source "
                  "whose args do not list them (none)")
      ->delimiter(',');
  verb.add_option_function<std::string>(
          "--schedules-method", [&options](const std::string&) { options.extras.dualpipev = true; },
          "dualpipev: layers of a mg result lie in a V, two chunks a stage; or of a mg source whose args do not say so")
      ->check(CLI::IsMember({"dualpipev"}));
  verb.add_flag("--moe-tp-extend-ep", options.moe_tp_extend_ep,
                "Deal whole experts of a ms, mg or dist result to EP x TP ranks");
  verb.add_flag("--moe-grouped-gemm", options.moe_grouped_gemm,
                "Name the experts of a mg or dist result as grouped layers do");
  verb.add_option("--target-norm-naming", flags.target_norm_naming,
                  "Names of norms in a mg result: local (megatron-core's own layers) or te (Transformer Engine); in a "
                  "dist result: whose modules have an extra state (mg: local, dist: te)");
  verb.add_option("--mg-args", flags.mg_args,
                  "What args of a mg or dist result are: namespace, dict or omit (namespace, as Megatron wants it)");
  verb.add_flag("--use-distributed-optimizer", options.use_distributed_optimizer,
                "Write optimizer state of a mg or dist result as the distributed optimizer's");
  verb.add_flag("--allow-custom-model", options.allow_custom_model,
                "Write a mg or dist result of a model that Megatron has no arguments for, for a program with its own "
                "layers (refused)");
  verb.add_option("--make-vocab-size-divisible-by", options.make_vocab_size_divisible_by,
                  "Pad the vocabulary of a mg or dist result to a multiple of this x TP (as the model says)")
      ->check(CLI::PositiveNumber);
}

convert::ConvertOptions convert_options(const ConvertFlags& flags, const Process& process) {
  convert::ConvertOptions options = flags.options;
  const auto& target = flags.layout.target;
  options.save_dir = flags.write.save_dir;
  options.dry_run = flags.write.dry_run;
  options.compress = flags.write.compress;
  options.write_path = core::parse_write_path(flags.write.write_path);
  if (!flags.load_model_type.empty()) {
    options.load_model_type = convert::parse_source_format(flags.load_model_type, "--load-model-type");
  }
  if (!flags.save_model_type.empty()) {
    options.save_model_type = convert::parse_target_format(flags.save_model_type, "--save-model-type");
  }
  options.target_tensor_parallel_size = target.tensor_model_parallel_size;
  options.target_pipeline_parallel_size = target.pipeline_model_parallel_size;
  options.target_data_parallel_size = target.data_parallel_size;
  options.target_expert_parallel_size = target.expert_model_parallel_size;
  options.expert_tensor_parallel_size = flags.layout.expert_tensor_parallel_size;
  options.num_layer_list = target.num_layer_list;
  options.num_layers_per_virtual_pipeline_stage = flags.layout.num_layers_per_virtual_pipeline_stage;
  options.q8_0 = flags.dtype == "q8_0";
  if (!flags.dtype.empty() && !options.q8_0) {
    const bool to_gguf = options.save_model_type == convert::Format::kGguf;
    options.dtype = convert::parse_weight_dtype(flags.dtype, "--dtype", to_gguf ? "q8_0" : "");
  }
  if (!flags.max_shard_size.empty()) {
    options.max_shard_size_bytes = convert::parse_size_bytes(flags.max_shard_size, "--max-shard-size");
  }
  if (!flags.target_norm_naming.empty()) {
    options.target_norm_naming = convert::parse_norm_naming(flags.target_norm_naming, "--target-norm-naming");
  }
  if (!flags.mg_args.empty()) options.mg_args = convert::parse_args_form(flags.mg_args, "--mg-args");
  std::sort(options.extras.noop_layers.begin(), options.extras.noop_layers.end());
  const auto& script = options.script_flags;
  options.claims.add_qkv_bias = std::find(script.begin(), script.end(), "--add-qkv-bias") != script.end();
  options.execute = execute_options(flags.write, process, "convert");
  return options;
}

// The flags that were given, one line each.
std::vector<std::string> given_flags(const CLI::App& verb) {
  std::vector<std::string> given;
  for (const CLI::Option* option : verb.get_options()) {
    if (option->count() == 0) continue;
    given.push_back(option->get_name());
    for (const std::string& value : option->results()) given.back() += cat(" ", value);
  }
  return given;
}

int run_convert(const ConvertFlags& flags, const Process& process) {
  const std::string load_dir = single_path(process, flags.options.load_dir, "--load-dir");
  if (load_dir.empty()) return 0;
  if (flags.write.save_dir.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "--save-dir is missing: where should the checkpoint go?");
  }
  convert::ConvertOptions options = convert_options(flags, process);
  options.load_dir = load_dir;
  const convert::ConvertReport report = convert::convert_checkpoint(options);
  core::log_progress("");
  core::log_info("msckpt.convert",
                 cat(options.load_dir, " is ", convert::format_name(report.from), " (", report.detected_by, ")"));
  for (const std::string& decision : report.decisions) core::log_info("msckpt.convert", decision);
  if (!options.dry_run) {
    core::log_info("msckpt.convert", cat(report.tensors, " tensors, ", ckpt::bytes_text(report.bytes), " as ",
                                         convert::format_name(report.to)));
  }
  if (options.resume && !options.dry_run) {
    core::log_info("msckpt.convert", cat("kept ", ckpt::bytes_text(report.kept_bytes), " of an earlier attempt"));
  }
  for (const std::string& line : report.carried) core::log_info("msckpt.convert", cat("carried: ", line));
  for (const std::string& line : report.dropped) core::log_info("msckpt.convert", cat("dropped: ", line));
  for (const std::string& line : report.from_flags) core::log_info("msckpt.convert", cat("from flags: ", line));
  if (report.proof) log_proof(report.path, *report.proof);
  const bool holds = !report.proof || report.proof->faults.empty();
  if (flags.json) {
    print_json(convert::to_json(report));
  } else if (holds) {
    print_result(report);
  }
  return holds ? 0 : core::exit_code(ErrorCode::kCorruptData);
}

}  // namespace

Verb add_convert(CLI::App& app) {
  const auto flags = std::make_shared<ConvertFlags>();
  CLI::App* verb = add_command(app, "convert",
                               "turn a checkpoint or a model's folder (Hugging Face, Megatron, FSDP, DeepSpeed, Meta, "
                               "ours) into another format",
                               flags->json);
  verb->add_option("--load-dir", flags->options.load_dir,
                   "Folder to read; its content says the format; - reads the path from stdin")
      ->required();
  add_write_flags(*verb, flags->write, "Folder to make; the path made is printed");
  verb->add_flag("--resume", flags->options.resume,
                 "Continue a killed run of the same command: keep what is read back with the hash that was noted; when "
                 "stopped, leave what is written (begin anew, leave nothing)");
  add_format_flags(*verb, *flags);
  add_common_layout_flags(*verb, flags->layout, "a ms, mg or dist result");
  verb->add_option("--target-data-parallel-size,--dp", flags->layout.target.data_parallel_size,
                   "FSDP ranks that a dcp result is cut for, a file for each (1)")
      ->check(CLI::Range(1, 1 << 20));
  add_hugging_face_flags(*verb, flags->options, flags->max_shard_size);
  add_name_flags(*verb, flags->options);
  add_megatron_flags(*verb, *flags);
  add_optimizer_flags(*verb, flags->options.optimizer);
  add_script_flags(*verb, *flags);
  verb->add_flag(
      "--prove", flags->options.prove,
      "Read the result again and prove that it holds every element of the source in one place; exit 3 if not");
  return {verb, [flags, verb](const Process& process) {
            flags->options.command = given_flags(*verb);
            return run_convert(*flags, process);
          }};
}

}  // namespace ms::tools::msckpt
