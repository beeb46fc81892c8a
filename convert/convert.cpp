#include "convert/convert.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "ckpt/layout.h"
#include "ckpt/native_sink.h"
#include "ckpt/plan.h"
#include "ckpt/reader.h"
#include "convert/dcp.h"
#include "convert/dcp_target.h"
#include "convert/deepspeed.h"
#include "convert/deepspeed/universal_target.h"
#include "convert/detail/printable.h"
#include "convert/gguf_target.h"
#include "convert/huggingface.h"
#include "convert/lora.h"
#include "convert/megatron.h"
#include "convert/megatron_dist.h"
#include "convert/meta.h"
#include "convert/user_family.h"
#include "core/error.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

// The element type of each canonical parameter in the target: as asked for, or as the source has it.
std::map<std::string, core::DType> target_dtypes(const ckpt::Source& source, std::optional<core::DType> asked) {
  std::map<std::string, core::DType> dtypes;
  for (const core::ShardedTensor& shard : source.shards()) {
    const bool is_buffer = shard.role == core::TensorRole::kBuffer;  // a router's bias decides: it keeps its type
    if (shard.role != core::TensorRole::kParam && !is_buffer) continue;
    const core::DType dtype = is_buffer ? shard.dtype : asked.value_or(shard.dtype);
    const auto [at, is_new] = dtypes.emplace(shard.key, dtype);
    if (!is_new && at->second != dtype) {
      throw Error(ErrorCode::kUnsupported, cat(shard.key, " comes in parts of ", core::dtype_name(at->second), " and ",
                                               core::dtype_name(dtype), "; choose one type with --dtype"));
    }
  }
  return dtypes;
}

bool is_megatron(Format format) { return format == Format::kMegatron || format == Format::kMegatronDist; }

// The optimizer state that is carried over. Says what is left out, or refuses to leave it out.
std::vector<core::TensorRole> roles_of_target(const ckpt::Source& source, const ConvertOptions& options,
                                              ConvertReport& report) {
  std::vector<core::TensorRole> roles = {core::TensorRole::kParam};
  if (ckpt::has_role(source, core::TensorRole::kBuffer)) roles.push_back(core::TensorRole::kBuffer);
  std::set<std::string> dropped;
  const bool to_native = report.to == Format::kNative,
             to_adam = is_megatron(report.to) || report.to == Format::kDcp || report.to == Format::kUniversal;
  for (const core::TensorRole role :
       {core::TensorRole::kMaster, core::TensorRole::kExpAvg, core::TensorRole::kExpAvgSq}) {
    if (!ckpt::has_role(source, role)) continue;
    if ((to_native || to_adam) && !options.drop_optimizer) {
      roles.push_back(role);
    } else {
      dropped.emplace(core::role_name(role));
    }
  }
  if (dropped.empty()) return roles;
  std::string names;
  for (const std::string& name : dropped) names += cat(names.empty() ? "" : ", ", name);
  if (!options.drop_optimizer) {
    throw Error(ErrorCode::kUnsupported,
                cat(options.load_dir, " holds optimizer state (", names, "), which ",
                    report.to == Format::kHuggingFace
                        ? std::string("a Hugging Face folder")
                        : cat("a ", format_name(report.to), report.to == Format::kGguf ? " file" : " checkpoint"),
                    " cannot; give --drop-optimizer to leave it out"));
  }
  report.decisions.push_back(cat("optimizer state is left out: ", names));
  return roles;
}

void note_casts(const ckpt::Source& source, const std::map<std::string, core::DType>& dtypes, ConvertReport& report) {
  std::map<std::pair<core::DType, core::DType>, int64_t> casts;
  for (const core::ShardedTensor& shard : source.shards()) {
    if (shard.role != core::TensorRole::kParam) continue;
    const core::DType to = dtypes.at(shard.key);
    if (to != shard.dtype) casts[{shard.dtype, to}] += core::num_elements(shard.local_shape);
  }
  for (const auto& [types, elements] : casts) {
    report.decisions.push_back(cat(elements, " elements are cast from ", core::dtype_name(types.first), " to ",
                                   core::dtype_name(types.second), ", to nearest even"));
  }
}

struct Target {
  ckpt::ShardTable shards;
  ckpt::CheckpointInfo info;
  std::unique_ptr<ckpt::Sink> sink;
};

// The element type of a canonical parameter in the target.
std::function<core::DType(const std::string& key)> dtype_of(const ConvertOptions& options,
                                                            const std::map<std::string, core::DType>& dtypes) {
  return [&](const std::string& key) {
    const auto dtype = dtypes.find(key);
    if (dtype == dtypes.end()) throw Error(ErrorCode::kCorruptData, cat(options.load_dir, ": ", key, " is missing"));
    return dtype->second;
  };
}

ckpt::ModelLayout target_layout(const ckpt::Source& source, const ConvertOptions& options) {
  ckpt::ModelLayout layout;
  layout.tensor_model_parallel_size = options.target_tensor_parallel_size;
  layout.pipeline_model_parallel_size = options.target_pipeline_parallel_size;
  core::TransformerConfig slots = source.info().model;  // no-op layers are counted with the others
  slots.num_layers += static_cast<int64_t>(options.extras.noop_layers.size());
  layout.virtual_pipeline_model_parallel_size =
      options.extras.dualpipev ? 2
                               : ckpt::virtual_pipeline_size(slots, layout.pipeline_model_parallel_size,
                                                             options.num_layers_per_virtual_pipeline_stage);
  layout.num_layer_list = options.num_layer_list;
  if (!source.info().model.has_experts()) {
    if (options.target_expert_parallel_size != 1 || options.expert_tensor_parallel_size || options.moe_tp_extend_ep ||
        options.moe_grouped_gemm) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--target-expert-parallel-size, --expert-tensor-parallel-size, --moe-tp-extend-ep and "
                      "--moe-grouped-gemm are of models with experts, and ",
                      options.load_dir, " has none"));
    }
    return layout;
  }
  const int tp = layout.tensor_model_parallel_size;
  layout.expert_model_parallel_size = options.target_expert_parallel_size;
  layout.expert_tensor_parallel_size = options.expert_tensor_parallel_size.value_or(tp);
  if (options.moe_tp_extend_ep) {
    if (options.expert_tensor_parallel_size.value_or(1) != 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--moe-tp-extend-ep gives each tensor-parallel rank whole experts, so "
                  "--expert-tensor-parallel-size can only be 1 with it");
    }
    layout.expert_model_parallel_size *= tp;
    layout.expert_tensor_parallel_size = 1;
  }
  // As few data-parallel ranks as hold all experts.
  const int expert_ranks = layout.expert_model_parallel_size * layout.expert_tensor_parallel_size;
  layout.data_parallel_size = std::lcm(tp, expert_ranks) / tp;
  return layout;
}

Target native_target(const ckpt::Source& source, const ConvertOptions& options,
                     const std::map<std::string, core::DType>& dtypes, std::span<const core::TensorRole> roles) {
  const ckpt::ModelLayout layout = target_layout(source, options);
  Target target;
  target.info = source.info();
  target.info.layout = ckpt::layout_to_json(layout);
  ckpt::validate_layout(layout, target.info.model);
  const auto specs = ckpt::parameter_specs(target.info.model);
  ckpt::ShardList list = ckpt::shards_of_checkpoint(
      layout, target.info.model, specs, roles, [&](size_t spec, core::TensorRole role) -> std::optional<core::DType> {
        if (!ckpt::has_role(specs[spec], role)) return std::nullopt;
        if (role != core::TensorRole::kParam) {
          const auto tensor = source.shards().find(specs[spec].key, role);
          return tensor ? std::optional(source.shards().dtype(*tensor)) : std::nullopt;
        }
        return dtype_of(options, dtypes)(specs[spec].key);
      });
  target.shards = std::move(list.shards);
  ckpt::NativeSinkOptions sink;
  sink.root = options.save_dir;
  sink.rank_of_target = std::move(list.ranks);
  sink.num_ranks = layout.world_size();
  sink.producer = "msckpt convert";
  sink.compress = options.compress;
  sink.write_path = options.write_path;
  if (!options.dry_run) target.sink = ckpt::make_native_sink(std::move(sink));
  return target;
}

// A tree, or torch_dist.
Target megatron_target(const ckpt::Source& source, const ConvertOptions& options,
                       const std::map<std::string, core::DType>& dtypes, bool with_optimizer, ConvertReport& report) {
  const bool dist = report.to == Format::kMegatronDist;
  MegatronTargetOptions asked;
  asked.root = options.save_dir;
  asked.layout = target_layout(source, options);
  asked.make_vocab_size_divisible_by = options.make_vocab_size_divisible_by;
  asked.moe_grouped_gemm = options.moe_grouped_gemm;
  asked.moe_tp_extend_ep = options.moe_tp_extend_ep;
  asked.extras = options.extras;
  asked.naming = options.target_norm_naming.value_or(dist ? MegatronNaming::kTransformerEngine : asked.naming);
  asked.args = options.mg_args.value_or(asked.args);
  asked.with_optimizer = with_optimizer;
  asked.use_distributed_optimizer = options.use_distributed_optimizer;
  asked.write_path = options.write_path;
  const auto make = dist ? make_megatron_dist_target : make_megatron_tree_target;
  MegatronTarget made = make(source, asked, dtype_of(options, dtypes), report.decisions);
  return {std::move(made.shards), source.info(), std::move(made.sink)};
}

// The config.json of the result. copy_from: the folder that came with it, if there is one.
json result_config(const ckpt::Source& source, const ConvertOptions& options, core::DType dtype, Format from,
                   const Family* named, std::string* copy_from) {
  const ckpt::CheckpointInfo& info = source.info();
  json original = info.model_extra.value("hf_config", json());
  if (!options.hf_cfg_dir.empty()) {
    HfConfig given = read_hf_config(options.hf_cfg_dir, named);
    if (info.model.mtp_num_layers == 0)
      given.model.mtp_num_layers = 0;  // transformers leaves such layers out, and the key in
    if (!same_model(given.model, info.model)) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--hf-cfg-dir ", options.hf_cfg_dir, ": its config.json describes another model than ",
                      options.load_dir));
    }
    original = given.original;
    *copy_from = options.hf_cfg_dir;
  } else if (from == Format::kHuggingFace) {
    *copy_from = options.load_dir;
  }
  return make_hf_config(info.model, original, dtype, named);
}

const std::string kEmbedding(kWordEmbeddings);

Target huggingface_target(const ckpt::Source& source, const ConvertOptions& options,
                          const std::map<std::string, core::DType>& dtypes, Format from, const Family* named) {
  Target target;
  target.info = source.info();
  HfSinkOptions sink;
  sink.folder = options.save_dir;
  sink.max_shard_size_bytes = options.max_shard_size_bytes;
  sink.config = result_config(source, options, dtype_of(options, dtypes)(kEmbedding), from, named, &sink.copy_from);
  sink.generation_config = target.info.model_extra.value("hf_generation_config", json());
  sink.family = named;
  const Family& family = named != nullptr ? *named : find_family(sink.config.at("model_type").get<std::string>());
  target.shards = hf_targets(family, target.info.model, dtype_of(options, dtypes));
  target.sink = make_hf_sink(std::move(sink));  // touches nothing before begin(), but refuses a folder with a model
  return target;
}

Target dcp_target(const ckpt::Source& source, const ConvertOptions& options,
                  const std::map<std::string, core::DType>& dtypes, bool with_optimizer, const Family* family,
                  ConvertReport& report) {
  DcpTargetOptions asked;
  asked.folder = options.save_dir;
  asked.data_parallel_size = options.target_data_parallel_size;
  asked.with_optimizer = with_optimizer;
  asked.write_path = options.write_path;
  std::string copy_from;
  asked.config = result_config(source, options, dtype_of(options, dtypes)(kEmbedding), report.from, family, &copy_from);
  DcpTarget made = make_dcp_target(source, asked, dtype_of(options, dtypes), report.decisions);
  return {std::move(made.shards), source.info(), std::move(made.sink)};
}

Target universal_target(const ckpt::Source& source, const ConvertOptions& options,
                        const std::map<std::string, core::DType>& dtypes, bool with_optimizer, const Family* family,
                        ConvertReport& report) {
  require_dense_model(source.info().model, options.load_dir, "such a ucp result is not written yet");
  UniversalTargetOptions asked;
  asked.root = options.save_dir;
  std::string copy_from;
  asked.config = result_config(source, options, dtype_of(options, dtypes)(kEmbedding), report.from, family, &copy_from);
  asked.with_optimizer = with_optimizer;
  asked.write_path = options.write_path;
  UniversalTarget made = make_universal_target(source, asked, dtype_of(options, dtypes), report.decisions);
  return {std::move(made.shards), source.info(), std::move(made.sink)};
}

Target gguf_target(const ckpt::Source& source, const ConvertOptions& options,
                   const std::map<std::string, core::DType>& dtypes, const Family* family, ConvertReport& report) {
  GgufTargetOptions asked;
  asked.folder = options.save_dir;
  asked.config = result_config(source, options, dtype_of(options, dtypes)(kEmbedding), report.from, family,
                               &asked.tokenizer_folder);
  asked.q8_0 = options.q8_0;
  GgufTarget made = make_gguf_target(source, asked, dtype_of(options, dtypes), report.decisions);
  return {std::move(made.shards), source.info(), std::move(made.sink)};
}

// Adam's state is of the weights without the adapter.
std::unique_ptr<ckpt::Source> with_lora(std::unique_ptr<ckpt::Source> source, const ConvertOptions& options,
                                        ConvertReport& report) {
  const bool trained =
      ckpt::has_role(*source, core::TensorRole::kMaster) || ckpt::has_role(*source, core::TensorRole::kExpAvg);
  if (trained && !options.drop_optimizer) {
    throw Error(ErrorCode::kUnsupported, cat(options.load_dir,
                                             " holds optimizer state, which is not of the weights that --lora "
                                             "makes; give --drop-optimizer to leave it out"));
  }
  return merge_lora(std::move(source), options.lora, options.dtype == core::DType::kFp32 || options.q8_0,
                    report.decisions);
}

// extras: of the source.
std::unique_ptr<ckpt::Source> open_from(const ConvertOptions& options, const Family* named,
                                        const PipelineExtras& extras, ConvertReport& report) {
  const MegatronOptions megatron{.true_vocab_size = options.true_vocab_size,
                                 .drop_optimizer = options.drop_optimizer,
                                 .extras = extras,
                                 .hf_cfg_dir = options.hf_cfg_dir};
  switch (report.from) {
    case Format::kHuggingFace:
      return open_huggingface(options.load_dir, named);
    case Format::kMegatron:
      return open_megatron(options.load_dir, megatron, report.decisions);
    case Format::kMegatronDist:
      return open_megatron_dist(options.load_dir, megatron, report.decisions);
    case Format::kDcp:
      return open_dcp(options.load_dir, {options.hf_cfg_dir, options.drop_optimizer}, report.decisions);
    case Format::kDeepSpeed:
      return open_deepspeed(options.load_dir, {options.hf_cfg_dir, options.drop_optimizer}, report.decisions);
    case Format::kUniversal:
      return open_universal(options.load_dir, {options.hf_cfg_dir, options.drop_optimizer}, report.decisions);
    case Format::kMeta:
      return open_meta(options.load_dir, options.hf_cfg_dir, report.decisions);
    case Format::kGguf:
      throw Error(ErrorCode::kUnsupported, cat(options.load_dir, ": gguf files are written, not read"));
    case Format::kNative:
      break;
  }
  return ckpt::open_native(options.load_dir);
}

// Lines that turn a tree into a Hugging Face folder repeat how it was made, since MindSpeed-LLM's converter cannot see
// it.
void leave_out_what_a_tree_says(ConvertOptions& options, ConvertReport& report) {
  if (report.from != Format::kMegatron || report.to != Format::kHuggingFace) return;
  const auto leave_out = [&](const char* flag, auto& option) {
    const std::remove_reference_t<decltype(option)> none{};
    if (option == none) return;
    option = none;
    report.decisions.push_back(cat(flag, " is taken and changes nothing: the tree says how it was made"));
  };
  leave_out("--moe-grouped-gemm", options.moe_grouped_gemm);
  leave_out("--moe-tp-extend-ep", options.moe_tp_extend_ep);
  leave_out("--expert-tensor-parallel-size", options.expert_tensor_parallel_size);
  leave_out("--num-layer-list", options.num_layer_list);
  leave_out("--num-layers-per-virtual-pipeline-stage", options.num_layers_per_virtual_pipeline_stage);
  leave_out("--target-norm-naming, which --transformer-impl means,", options.target_norm_naming);
}

// Options that say nothing of this target.
void refuse_options_of_others(const ConvertOptions& options, Format from, Format to) {
  const auto refuse = [](const auto&... parts) { throw Error(ErrorCode::kInvalidArgument, cat(parts...)); };
  if (to == Format::kDeepSpeed || to == Format::kMeta) {
    throw Error(ErrorCode::kUnsupported,
                cat("--save-model-type ", format_name(to), ": such checkpoints are read, not written"));
  }
  if (to != Format::kNative && options.compress) {
    refuse("--compress is of checkpoints of ours, not of a ", format_name(to), " result");
  }
  if ((to == Format::kHuggingFace || to == Format::kGguf) && options.write_path) {
    refuse("--write-path is of a ms, mg, dist, dcp or ucp result, not of a ", format_name(to), " one");
  }
  if (!is_megatron(to) && (options.target_norm_naming || options.mg_args || options.use_distributed_optimizer ||
                           options.moe_grouped_gemm || options.make_vocab_size_divisible_by != 0)) {
    refuse(
        "--target-norm-naming, --mg-args, --moe-grouped-gemm, --use-distributed-optimizer and "
        "--make-vocab-size-divisible-by are of a mg or dist result, not of a ",
        format_name(to), " one");
  }
  const auto says_no_model = [](Format format) {
    return format == Format::kDcp || format == Format::kDeepSpeed || format == Format::kUniversal ||
           format == Format::kMeta;
  };
  const bool has_config = to == Format::kHuggingFace || to == Format::kGguf || says_no_model(to) ||
                          says_no_model(from) || from == Format::kMegatron;
  if (!options.hf_cfg_dir.empty() && !has_config) {
    refuse(
        "--hf-cfg-dir is of a hf or gguf result, a mg source, or a dcp, ds, ucp or meta source or result, and this "
        "goes from ",
        format_name(from), " to ", format_name(to));
  }
  if (to != Format::kGguf && options.q8_0) {
    refuse("--dtype q8_0 is of a gguf result, not of a ", format_name(to), " one");
  }
  if (to != Format::kDcp && options.target_data_parallel_size != 1) {
    refuse("--target-data-parallel-size is of a dcp result, not of a ", format_name(to), " one");
  }
  if (options.extras.any() && from != Format::kMegatron && to != Format::kMegatron) {
    refuse("--noop-layers and --schedules-method are of a mg result, or of a mg source, and this goes from ",
           format_name(from), " to ", format_name(to));
  }
  if (options.extras.dualpipev && options.num_layers_per_virtual_pipeline_stage != 0) {
    refuse(
        "--schedules-method dualpipev gives each stage two chunks: leave --num-layers-per-virtual-pipeline-stage out");
  }
  const bool has_layout = to == Format::kNative || is_megatron(to);
  if (!has_layout &&
      (options.target_tensor_parallel_size != 1 || options.target_pipeline_parallel_size != 1 ||
       options.num_layers_per_virtual_pipeline_stage != 0 || !options.num_layer_list.empty() ||
       options.target_expert_parallel_size != 1 || options.expert_tensor_parallel_size || options.moe_tp_extend_ep)) {
    refuse("a ", to == Format::kHuggingFace ? std::string("Hugging Face folder") : cat(format_name(to), " result"),
           " has no parallel layout; leave --target-tensor-parallel-size, "
           "--target-pipeline-parallel-size, --target-expert-parallel-size, --expert-tensor-parallel-size, "
           "--moe-tp-extend-ep, --num-layer-list and --num-layers-per-virtual-pipeline-stage out");
  }
}

}  // namespace

ConvertReport convert_checkpoint(const ConvertOptions& asked) {
  ConvertOptions options = asked;
  ConvertReport report;
  report.dry_run = options.dry_run;
  if (options.load_model_type) {
    report.from = *options.load_model_type;
    report.detected_by = "--load-model-type";
  } else {
    const Detection found = detect_format(options.load_dir);
    report.from = found.format;
    report.detected_by = found.rule;
  }
  const Format other = report.from == Format::kNative ? Format::kHuggingFace : Format::kNative;
  report.to = options.save_model_type.value_or(other);
  if (options.true_vocab_size != 0 && !is_megatron(report.from)) {
    throw Error(ErrorCode::kInvalidArgument, cat("--true-vocab-size is of Megatron checkpoints, and ", options.load_dir,
                                                 " is ", format_name(report.from), ", which has no padding"));
  }
  if (report.from == Format::kNative && report.to == Format::kNative) {
    throw Error(ErrorCode::kInvalidArgument, cat(options.load_dir,
                                                 " is a native checkpoint and so is the target; use msckpt "
                                                 "reshard, which keeps the optimizer state"));
  }
  if (fs::exists(options.save_dir) && !fs::is_directory(options.save_dir)) {
    throw Error(ErrorCode::kInvalidArgument, cat("--save-dir ", options.save_dir, " is a file, not a folder"));
  }
  std::error_code absent;  // then they differ
  if (fs::equivalent(options.load_dir, options.save_dir, absent)) {
    throw Error(ErrorCode::kInvalidArgument, cat("--load-dir and --save-dir are the same folder, ", options.save_dir));
  }
  for (std::string& note : notes_on_script_flags(options.script_flags, report.to == Format::kMegatron))
    report.decisions.push_back(std::move(note));
  leave_out_what_a_tree_says(options, report);
  refuse_options_of_others(options, report.from, report.to);
  const bool has_names = report.from == Format::kHuggingFace || report.to == Format::kHuggingFace;
  if (!options.name_map.empty() && !has_names) {
    throw Error(ErrorCode::kInvalidArgument, "--name-map is of Hugging Face folders, and there is none");
  }
  if (!options.name_map.empty() && !options.claims.model_type_hf.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--name-map names a family, and so does --model-type-hf: give one of them");
  }
  std::optional<UserFamily> user_family;
  if (!options.name_map.empty()) user_family.emplace(options.name_map);
  const Family* named = user_family ? &user_family->family() : nullptr;
  const bool to_tree = report.to == Format::kMegatron;  // else extras are of the source
  std::unique_ptr<ckpt::Source> source = open_from(options, named, to_tree ? PipelineExtras() : options.extras, report);
  if (!to_tree) options.extras = {};
  const bool config_is_used = report.to != Format::kNative && !is_megatron(report.to);
  if (is_megatron(report.from) && !options.hf_cfg_dir.empty() && !config_is_used &&
      !source->info().model_extra.contains("hf_config")) {
    report.decisions.push_back("--hf-cfg-dir is taken and changes nothing: args say what the model is");
  }
  const Family* said =
      check_script_claims(options.claims, source->info().model, source->info().model_extra.value("hf_config", json()),
                          static_cast<int64_t>(asked.extras.noop_layers.size()));
  if (!options.lora.empty()) source = with_lora(std::move(source), options, report);
  const std::vector<core::TensorRole> roles = roles_of_target(*source, options, report);
  const bool masters_are_weights =
      report.to == Format::kDcp && std::find(roles.begin(), roles.end(), core::TensorRole::kMaster) != roles.end();
  if (masters_are_weights && options.dtype.value_or(core::DType::kFp32) != core::DType::kFp32) {
    throw Error(ErrorCode::kUnsupported,
                cat("--dtype ", core::dtype_name(*options.dtype),
                    ": the weights of a dcp checkpoint with optimizer state "
                    "are the fp32 master weights; leave --dtype out, or give --drop-optimizer"));
  }
  const auto dtypes = target_dtypes(*source, masters_are_weights ? std::optional(core::DType::kFp32) : options.dtype);
  if (!masters_are_weights) note_casts(*source, dtypes, report);
  const bool with_optimizer = std::any_of(roles.begin(), roles.end(), [](core::TensorRole role) {
    return role != core::TensorRole::kParam && role != core::TensorRole::kBuffer;
  });
  Target target = report.to == Format::kNative ? native_target(*source, options, dtypes, roles)
                  : is_megatron(report.to)     ? megatron_target(*source, options, dtypes, with_optimizer, report)
                  : report.to == Format::kDcp  ? dcp_target(*source, options, dtypes, with_optimizer, said, report)
                  : report.to == Format::kUniversal
                      ? universal_target(*source, options, dtypes, with_optimizer, said, report)
                  : report.to == Format::kGguf
                      ? gguf_target(*source, options, dtypes, said, report)
                      : huggingface_target(*source, options, dtypes, report.from, named != nullptr ? named : said);
  report.tensors = static_cast<int64_t>(dtypes.size());
  for (const core::ShardedTensor& shard : target.shards) {
    report.bytes += core::num_elements(shard.local_shape) * core::size_of(shard.dtype);
  }
  if (options.dry_run) {
    ckpt::plan_copies(source->shards(), target.shards, [](const ckpt::CopyRegion&) {});  // throws what would fail
    report.path = options.save_dir;
    return report;
  }
  const ckpt::ExecuteReport done = ckpt::execute(*source, *target.sink, target.info, target.shards, options.execute);
  report.path = done.path.string();
  report.seconds = done.seconds;
  return report;
}

json to_json(const ConvertReport& report) {
  return {{"schema", "msckpt/1"},          {"verb", "convert"},
          {"path", report.path},           {"from", format_name(report.from)},
          {"to", format_name(report.to)},  {"detected_by", report.detected_by},
          {"tensors", report.tensors},     {"bytes", report.bytes},
          {"decisions", report.decisions}, {"dry_run", report.dry_run},
          {"seconds", report.seconds}};
}

Format parse_format(const std::string& text, const std::string& flag) {
  if (text == "hf") return Format::kHuggingFace;
  if (text == "mg") return Format::kMegatron;
  if (text == "dist") return Format::kMegatronDist;
  if (text == "dcp") return Format::kDcp;
  if (text == "ds") return Format::kDeepSpeed;
  if (text == "ucp") return Format::kUniversal;
  if (text == "meta") return Format::kMeta;
  if (text == "gguf") return Format::kGguf;
  if (text == "ms") return Format::kNative;
  throw Error(ErrorCode::kInvalidArgument,
              cat(flag, " ", detail::printable(text), ": expected hf, mg, dist, dcp, ds, ucp, meta, gguf or ms"));
}

MegatronNaming parse_norm_naming(const std::string& text, const std::string& flag) {
  if (text == "local") return MegatronNaming::kLocal;
  if (text == "te") return MegatronNaming::kTransformerEngine;
  throw Error(ErrorCode::kInvalidArgument, cat(flag, " ", detail::printable(text), ": expected local or te"));
}

MegatronArgsForm parse_args_form(const std::string& text, const std::string& flag) {
  if (text == "namespace") return MegatronArgsForm::kNamespace;
  if (text == "dict") return MegatronArgsForm::kDict;
  if (text == "omit") return MegatronArgsForm::kOmit;
  throw Error(ErrorCode::kInvalidArgument,
              cat(flag, " ", detail::printable(text), ": expected namespace, dict or omit"));
}

core::DType parse_weight_dtype(const std::string& text, const std::string& flag) {
  const auto dtype = core::parse_dtype(text);
  if (dtype == core::DType::kFp32 || dtype == core::DType::kBf16 || dtype == core::DType::kFp16) return *dtype;
  throw Error(ErrorCode::kInvalidArgument, cat(flag, " ", detail::printable(text), ": expected fp32, bf16 or fp16"));
}

int64_t parse_size_bytes(const std::string& text, const std::string& flag) {
  static const std::map<std::string, int64_t> kUnits = {
      {"", 1},          {"B", 1},         {"KB", 1'000},   {"MB", 1'000'000}, {"GB", 1'000'000'000},
      {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto unit = kUnits.find(std::string(end, text.data() + text.size()));
  int64_t bytes = 0;
  if (error != std::errc() || unit == kUnits.end() || number <= 0 ||
      __builtin_mul_overflow(number, unit->second, &bytes)) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(flag, " ", detail::printable(text), ": expected a size such as 5GB, 500MB or 2GiB"));
  }
  return bytes;
}

}  // namespace ms::convert
