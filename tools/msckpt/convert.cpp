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
#include "tools/command_line.h"
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
  const char* group = "Flags of MindSpeed-LLM's and Megatron's conversion scripts";
  const std::map<std::string, std::string> impls = {{"local", "local"}, {"transformer_engine", "te"}};
  verb.add_option("--transformer-impl,--saver-transformer-impl", flags.target_norm_naming,
                  "local or transformer_engine: same as --target-norm-naming local or te")
      ->transform(CLI::Transformer(impls))
      ->check(CLI::IsMember({"local", "te"}))
      ->group(group);
  const std::map<std::string, std::string> savers = {{"core", "mg"}, {"mcore", "mg"}, {"megatron", "mg"}};
  verb.add_option("--saver", flags.save_model_type, "core, mcore or megatron: same as --save-model-type mg")
      ->transform(CLI::CheckedTransformer(savers))
      ->group(group);
  for (const char* dtype : {"bf16", "fp16"}) {
    verb.add_flag_callback(
            core::cat("--", dtype), [&flags, dtype] { flags.dtype = dtype; }, core::cat("Same as --dtype ", dtype))
        ->group(group);
  }
  verb.add_option_function<std::string>(
          "--model-type", [](const std::string&) {}, "GPT, the only supported model type")
      ->check(CLI::IsMember({"GPT"}))
      ->group(group);
  verb.add_option("--num-layers", flags.options.claims.num_layers,
                  "Number of layers; an error if the model has another number")
      ->group(group);
  verb.add_option(
          "--first-k-dense-replace", flags.options.claims.first_k_dense_replace,
          "Number of dense layers before the first layer with experts; an error if the model has another number")
      ->group(group);
  verb.add_option("--mtp-num-layers", flags.options.claims.mtp_num_layers,
                  "Number of multi-token prediction layers; an error if the model has another number")
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
      "dcp (PyTorch), ds (DeepSpeed), ucp (DeepSpeed's universal checkpoints), meta (consolidated.*.pth), fsdp (rank "
      "files of FSDP), file (one file of tensors) or ms (native) (default: detected from the content)");
  verb.add_option(
      "--save-model-type,--to", flags.save_model_type,
      "Format of the result: hf, hf-bin (pytorch_model.bin), file (--save-dir is one .safetensors, .pt or .bin "
      "file), mg, dist, dcp, ucp, gguf or ms (default: ms; hf for a ms source or one of unknown family)");
  verb.add_option("--dtype,--params-dtype", flags.dtype,
                  "Element type of all weights: fp32, bf16 or fp16; for a gguf result also q8_0 (default: that of the "
                  "source)");
  verb.add_flag("--drop-optimizer", flags.options.drop_optimizer, "Drop master weights and moments");
}

void add_optimizer_flags(CLI::App& verb, convert::OptimizerFlags& flags) {
  convert::OptimizerFlags::fields([&](std::string name, auto member, const char* help) {
    std::replace(name.begin(), name.end(), '_', '-');
    verb.add_option("--" + name, flags.*member, cat(help, " (default: the source's)"))->group("Optimizer settings");
  });
}

void add_hugging_face_flags(CLI::App& verb, convert::ConvertOptions& options, std::string& max_shard_size) {
  verb.add_option(
      "--hf-cfg-dir", options.hf_cfg_dir,
      "Folder with config.json and tokenizer files for a hf or gguf result; its config.json also describes "
      "the model of a dcp, ds, ucp, meta or fsdp source, and of a dcp or ucp result (default: the source's)");
  verb.add_option(
      "--model-type-hf", options.claims.model_type_hf,
      "Family of the source, and of a hf, dcp, ucp or gguf result: MindSpeed-LLM's name or a name listed by "
      "msckpt families (default: the source's, or the first family that can represent the model)");
  verb.add_option("--name-map", options.name_map,
                  "JSON file that maps the tensors and config.json keys of a hf source or result, for a family that is "
                  "not built in; msckpt families --explain NAME prints one to start from (default: built-in families)");
  verb.add_option(
      "--passthrough", options.passthrough,
      "REGEX: also keep matching tensors of a hf source that no family names, under their own names; vision "
      "towers and other known parts of multimodal models are always kept");
  verb.add_flag("--drop-passthrough", options.drop_passthrough,
                "Drop tensors that no family names, for example vision towers: write only the language model");
  verb.add_option("--passthrough-from", options.passthrough_from,
                  "Hugging Face folder from which vision tensors are added: the multimodal model that the run started "
                  "from. mstrain and Megatron save only the language model (default: none)");
  verb.add_option("--lora", options.lora, "Folder of a PEFT LoRA adapter to merge into the weights");
  verb.add_option(
      "--max-shard-size", max_shard_size,
      "Maximum size of a file of a hf or hf-bin result, for example 5GB or 500MB (default: 5GB; for hf as in "
      "the folder of its config.json)");
}

// For sources without a family, or with --as-named.
void add_name_flags(CLI::App& verb, convert::ConvertOptions& options) {
  verb.add_flag(
      "--as-named", options.as_named,
      "Keep the names of the source's tensors even if the model is known (implied for sources of unknown family)");
  verb.add_option(
          "--rename", options.names.rename,
          "REGEX=TEMPLATE, for example ^module\\.= or ^h\\.(.*)=layers.$1: rename tensors by replacing matches of the "
          "ECMAScript expression; repeatable, applied in order")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option("--include", options.names.include,
                  "REGEX: convert only tensors whose names contain a match (default: all); repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option("--exclude", options.names.exclude,
                  "REGEX: drop tensors whose names contain a match (default: none); repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_megatron_flags(CLI::App& verb, ConvertFlags& flags) {
  convert::ConvertOptions& options = flags.options;
  verb.add_option("--true-vocab-size", options.true_vocab_size,
                  "Rows of a Megatron source's vocabulary without padding (default: from its args)")
      ->check(positive_number());
  verb.add_option(
          "--noop-layers", options.extras.noop_layers,
          "Indices of MindSpeed-LLM's no-op layers, for example 2,7, in a mg result, or in a mg source whose args "
          "do not list them (default: none)")
      ->delimiter(',');
  verb.add_option_function<std::string>(
          "--schedules-method", [&options](const std::string&) { options.extras.dualpipev = true; },
          "dualpipev: the layers of a mg result are arranged in a V with two chunks per stage; also for a mg source "
          "whose "
          "args do not contain it")
      ->check(CLI::IsMember({"dualpipev"}));
  verb.add_flag("--moe-tp-extend-ep", options.moe_tp_extend_ep,
                "Distribute the experts of a ms, mg or dist result, unsplit, over EP x TP ranks");
  verb.add_flag("--moe-grouped-gemm", options.moe_grouped_gemm,
                "Name the experts of a mg or dist result as grouped GEMM layers do");
  verb.add_option("--target-norm-naming", flags.target_norm_naming,
                  "Names of norms in a mg result: local (megatron-core's own layers) or te (Transformer Engine); in a "
                  "dist result: which modules have an extra state (default: local for mg, te for dist)");
  verb.add_option(
      "--mg-args", flags.mg_args,
      "Type of args in a mg or dist result: namespace, as Megatron expects, dict or omit (default: namespace)");
  verb.add_flag("--use-distributed-optimizer", options.use_distributed_optimizer,
                "Write optimizer state of a mg or dist result in the distributed optimizer's format");
  verb.add_flag("--allow-custom-model", options.allow_custom_model,
                "Write a mg or dist result even if Megatron has no arguments for the model, for a program with its own "
                "layers (default: an error)");
  verb.add_option("--make-vocab-size-divisible-by", options.make_vocab_size_divisible_by,
                  "Pad the vocabulary of a mg or dist result to a multiple of this x TP (default: the model's)")
      ->check(positive_number());
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
    throw Error(ErrorCode::kInvalidArgument, "--save-dir is missing: give the folder to write to");
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
                               "convert a checkpoint or model folder (Hugging Face, Megatron, FSDP, DeepSpeed, Meta, "
                               "native) to another format",
                               flags->json);
  verb->add_option("--load-dir", flags->options.load_dir,
                   "Folder to read; the format is detected from its content; - reads the path from stdin")
      ->required();
  add_write_flags(*verb, flags->write, "Folder to write; the path of the result is printed");
  verb->add_flag(
      "--resume", flags->options.resume,
      "Continue a killed run of the same command: keep data whose recorded hash is right when it is read back; "
      "if stopped, keep what was written (default: start again, keep nothing)");
  add_format_flags(*verb, *flags);
  add_common_layout_flags(*verb, flags->layout, "a ms, mg or dist result");
  verb->add_option("--target-data-parallel-size,--dp", flags->layout.target.data_parallel_size,
                   "FSDP ranks of a dcp result, one file per rank (default: 1)")
      ->check(CLI::Range(1, 1 << 20));
  add_hugging_face_flags(*verb, flags->options, flags->max_shard_size);
  add_name_flags(*verb, flags->options);
  add_megatron_flags(*verb, *flags);
  add_optimizer_flags(*verb, flags->options.optimizer);
  add_script_flags(*verb, *flags);
  verb->add_flag(
      "--prove", flags->options.prove,
      "Read the result again and prove that it holds every element of the source in exactly one place; exit 3 if not");
  return {verb, [flags, verb](const Process& process) {
            flags->options.command = given_flags(*verb);
            return run_convert(*flags, process);
          }};
}

}  // namespace ms::tools::msckpt
