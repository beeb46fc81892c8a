#include "convert/formats.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "ckpt/native_sink.h"
#include "ckpt/reader.h"
#include "ckpt/shard_list.h"
#include "convert/convert_named.h"
#include "convert/dcp.h"
#include "convert/dcp_target.h"
#include "convert/deepspeed.h"
#include "convert/deepspeed/universal_target.h"
#include "convert/gguf_target.h"
#include "convert/huggingface.h"
#include "convert/megatron.h"
#include "convert/megatron/tree.h"
#include "convert/megatron_dist.h"
#include "convert/meta.h"
#include "convert/named.h"
#include "convert/passthrough.h"
#include "convert/rank_source.h"
#include "convert/torch/rank_files.h"
#include "convert/wrapper.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;
using Decisions = std::vector<std::string>;

layout::ModelLayout target_layout(const ckpt::Source& source, const ConvertOptions& options) {
  layout::ModelLayout layout;
  layout.size_flags = layout::kTargetSizeFlags;
  layout.tensor_model_parallel_size = options.target_tensor_parallel_size;
  layout.pipeline_model_parallel_size = options.target_pipeline_parallel_size;
  core::TransformerConfig slots = source.info().model;  // no-op layers count as layers here
  slots.num_layers += static_cast<int64_t>(options.extras.noop_layers.size());
  layout.virtual_pipeline_model_parallel_size =
      options.extras.dualpipev ? 2
                               : layout::virtual_pipeline_size(slots, layout.pipeline_model_parallel_size,
                                                               options.num_layers_per_virtual_pipeline_stage);
  layout.num_layer_list = options.num_layer_list;
  if (!source.info().model.has_experts()) {
    if (options.target_expert_parallel_size != 1 || options.expert_tensor_parallel_size || options.moe_tp_extend_ep ||
        options.moe_grouped_gemm) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--target-expert-parallel-size, --expert-tensor-parallel-size, --moe-tp-extend-ep and "
                      "--moe-grouped-gemm need a model with experts, and ",
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
                  "--expert-tensor-parallel-size must be 1 with it");
    }
    layout.expert_model_parallel_size *= tp;
    layout.expert_tensor_parallel_size = 1;
  }
  // The fewest data-parallel ranks that hold all experts.
  const int expert_ranks = layout.expert_model_parallel_size * layout.expert_tensor_parallel_size;
  layout.data_parallel_size = std::lcm(tp, expert_ranks) / tp;
  return layout;
}

// The config.json of the result describes a multimodal model, of which the source has only the language model: mstrain
// and Megatron save nothing else.
void note_missing_parts(const json& config, const ckpt::Source& source, const ConvertOptions& options,
                        std::vector<std::string>& decisions) {
  const bool has_a_place = options.save_model_type != Format::kGguf && options.save_model_type != Format::kUniversal;
  if (!has_a_place || !is_wrapper(config) || !passthrough_tensors(source).empty()) return;
  decisions.push_back(
      cat("the result lacks the vision tensors of its ", config["model_type"].get<std::string>(), " model, which ",
          options.load_dir,
          " does not contain; --passthrough-from FOLDER adds them from the folder of the original model, "
          "--drop-passthrough writes the language model alone"));
}

Target native_target(const TargetRequest& request, std::vector<std::string>& /*decisions*/) {
  const ckpt::Source& source = request.source;
  const ConvertOptions& options = request.options;
  const layout::ModelLayout layout = target_layout(source, options);
  Target target;
  target.info = source.info();
  target.info.layout = layout::layout_to_json(layout);
  layout::validate_layout(layout, target.info.model);
  auto specs = layout::parameter_specs(target.info.model);
  for (const core::ShardedTensor& other : passthrough_tensors(source)) {
    specs.push_back(layout::passthrough_spec(other.key, other.global_shape));
  }
  ckpt::ShardList list =
      ckpt::shards_of_checkpoint(layout, target.info.model, specs, request.roles,
                                 [&](size_t spec, core::TensorRole role) -> std::optional<core::DType> {
                                   if (!layout::has_role(specs[spec], role)) return std::nullopt;
                                   if (role != core::TensorRole::kParam) {
                                     const auto tensor = source.shards().find(specs[spec].key, role);
                                     return tensor ? std::optional(source.shards().dtype(*tensor)) : std::nullopt;
                                   }
                                   return request.dtype(specs[spec].key);
                                 });
  target.shards = std::move(list.shards);
  ckpt::NativeSinkOptions sink;
  sink.root = options.save_dir;
  sink.rank_of_target = std::move(list.ranks);
  sink.num_ranks = layout.world_size();
  sink.producer = "msckpt convert";
  sink.compress = options.compress;
  sink.write_path = request.writing.write_path;
  sink.resume = request.writing.resume;
  LayoutHash plan;
  plan.add(request.writing.job);
  plan.add(target.shards);
  plan.add(cat(target.info.iteration, target.info.layout.dump(), target.info.model_extra.dump(),
               target.info.common.dump(), options.compress));
  sink.plan_hash = core::hex16(plan.value());
  if (!options.dry_run) target.sink = ckpt::make_native_sink(std::move(sink));
  return target;
}

// Makes the target for a tree, or for torch_dist.
Target megatron_target(const TargetRequest& request, bool dist, std::vector<std::string>& decisions) {
  const auto& [source, options] = std::tie(request.source, request.options);
  MegatronTargetOptions asked;
  asked.root = options.save_dir;
  asked.layout = target_layout(source, options);
  asked.make_vocab_size_divisible_by = options.make_vocab_size_divisible_by;
  asked.moe_grouped_gemm = options.moe_grouped_gemm;
  asked.moe_tp_extend_ep = options.moe_tp_extend_ep;
  asked.extras = options.extras;
  asked.naming = options.target_norm_naming.value_or(dist ? MegatronNaming::kTransformerEngine : asked.naming);
  asked.args = options.mg_args.value_or(asked.args);
  asked.with_optimizer = request.with_optimizer;
  asked.use_distributed_optimizer = options.use_distributed_optimizer;
  asked.allow_custom_model = options.allow_custom_model;
  asked.writing = request.writing;
  const auto make = dist ? make_megatron_dist_target : make_megatron_tree_target;
  MegatronTarget made = make(source, asked, request.dtype, decisions);
  return {std::move(made.shards), source.info(), std::move(made.sink)};
}

Target huggingface_target(const TargetRequest& request, std::vector<std::string>& decisions) {
  const auto& [source, options] = std::tie(request.source, request.options);
  Target target;
  target.info = source.info();
  HfSinkOptions sink;
  sink.folder = options.save_dir;
  sink.max_shard_size_bytes = options.max_shard_size_bytes;
  sink.config = result_config(request, &sink.copy_from, decisions);
  sink.generation_config = target.info.model_extra.value("hf_generation_config", json());
  sink.family = request.family;
  sink.writing = request.writing;
  const auto family = family_of_result(sink.config, target.info.model_extra, request.family);
  const std::vector<core::ShardedTensor> others = passthrough_tensors(source);
  if (!others.empty() && !is_wrapper(sink.config) && is_wrapper_tensor(others.front().key)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        cat(options.load_dir, " contains tensors outside the language model (", others.front().key,
            ", ..), and no config.json of the whole model; give its folder as --hf-cfg-dir, or --drop-passthrough"));
  }
  target.shards = hf_targets(*family, target.info.model, request.dtype, others);
  // Writes nothing before begin(), but refuses a folder that contains a model.
  target.sink = make_hf_sink(std::move(sink));
  return target;
}

Target dcp_target(const TargetRequest& request, std::vector<std::string>& decisions) {
  const auto& [source, options] = std::tie(request.source, request.options);
  DcpTargetOptions asked;
  asked.folder = options.save_dir;
  asked.data_parallel_size = options.target_data_parallel_size;
  asked.with_optimizer = request.with_optimizer;
  asked.writing = request.writing;
  std::string copy_from;
  asked.config = result_config(request, &copy_from, decisions);
  DcpTarget made = make_dcp_target(source, asked, request.dtype, decisions);
  return {std::move(made.shards), source.info(), std::move(made.sink)};
}

Target universal_target(const TargetRequest& request, std::vector<std::string>& decisions) {
  const auto& [source, options] = std::tie(request.source, request.options);
  require_dense_model(source.info().model, options.load_dir, "such ucp results are not supported yet");
  UniversalTargetOptions asked;
  asked.root = options.save_dir;
  std::string copy_from;
  asked.config = result_config(request, &copy_from, decisions);
  asked.with_optimizer = request.with_optimizer;
  asked.writing = request.writing;
  UniversalTarget made = make_universal_target(source, asked, request.dtype, decisions);
  return {std::move(made.shards), source.info(), std::move(made.sink)};
}

Target gguf_target(const TargetRequest& request, std::vector<std::string>& decisions) {
  const auto& [source, options] = std::tie(request.source, request.options);
  GgufTargetOptions asked;
  asked.folder = options.save_dir;
  asked.config = result_config(request, &asked.tokenizer_folder, decisions);
  asked.q8_0 = options.q8_0;
  asked.writing = request.writing;
  GgufTarget made = make_gguf_target(source, asked, request.dtype, decisions);
  return {std::move(made.shards), source.info(), std::move(made.sink)};
}

std::string native_sign(const std::string& path) { return ckpt::is_native(path) ? "manifest.json with our magic" : ""; }

MegatronOptions megatron_options(const SourceRequest& request) {
  return {.true_vocab_size = request.options.true_vocab_size,
          .drop_optimizer = request.options.drop_optimizer,
          .extras = request.extras,
          .hf_cfg_dir = request.options.hf_cfg_dir};
}

HfNamedOptions hf_named_options(const SourceRequest& request) {
  return {.hf_cfg_dir = request.options.hf_cfg_dir,
          .drop_optimizer = request.options.drop_optimizer,
          .for_proof = request.for_proof};
}

// Opens formats with their own tensor names: without a family, or with one by `open`.
template <Format format, class Open>
std::unique_ptr<ckpt::Source> open_either(const std::string& path, const SourceRequest& request, Decisions& decisions,
                                          const Open& open) {
  const ConvertOptions& options = request.options;
  if (reads_as_named(format, path, options.hf_cfg_dir, options.as_named, request.family)) {
    return open_named(path, options.drop_optimizer, decisions);
  }
  return open();
}

std::unique_ptr<ckpt::Source> open_as_named(const std::string& path, const SourceRequest& request,
                                            Decisions& decisions) {
  return open_named(path, request.options.drop_optimizer, decisions);
}

std::string file_sign(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? "" : named_sign(path);
}

// convert_named writes results that keep names.
Target names_alone(const TargetRequest& request, Decisions& /*decisions*/) {
  MS_CHECK(false, format_row(request.from).noun, " has no tensor names that the result could keep");
  return {};
}

const FormatRow kFormats[] = {
    {Format::kNative, "ms", "a ms checkpoint", true, native_sign,
     [](const std::string& path, const SourceRequest&, Decisions&) { return ckpt::open_native(path); }, native_target},
    {Format::kHuggingFace, "hf", "a Hugging Face folder", false, huggingface_sign,
     [](const std::string& path, const SourceRequest& request, Decisions& decisions) {
       return open_either<Format::kHuggingFace>(path, request, decisions, [&] {
         return open_huggingface(path, request.family, request.options.passthrough);
       });
     },
     huggingface_target},
    {Format::kMeta, "meta", "a folder of Meta's files", false, meta_sign,
     [](const std::string& path, const SourceRequest& request, Decisions& decisions) {
       return open_meta(path, request.options.hf_cfg_dir, decisions);
     },
     nullptr},
    {Format::kMegatron, "mg", "a mg checkpoint", true, [](const std::string& path) { return megatron_sign(path); },
     [](const std::string& path, const SourceRequest& request, Decisions& decisions) {
       return open_megatron(path, megatron_options(request), decisions);
     },
     [](const TargetRequest& request, Decisions& decisions) { return megatron_target(request, false, decisions); }},
    {Format::kMegatronDist, "dist", "a dist checkpoint", true, megatron_dist_sign,
     [](const std::string& path, const SourceRequest& request, Decisions& decisions) {
       return open_megatron_dist(path, megatron_options(request), decisions);
     },
     [](const TargetRequest& request, Decisions& decisions) { return megatron_target(request, true, decisions); }},
    {Format::kRankFiles, "fsdp", "FSDP rank files", true, rank_files_sign,
     [](const std::string& path, const SourceRequest& request, Decisions& decisions) {
       return open_either<Format::kRankFiles>(
           path, request, decisions, [&] { return open_rank_files(path, hf_named_options(request), decisions); });
     },
     nullptr},
    {Format::kDcp, "dcp", "a dcp checkpoint", true, dcp_sign,
     [](const std::string& path, const SourceRequest& request, Decisions& decisions) {
       return open_either<Format::kDcp>(path, request, decisions,
                                        [&] { return open_dcp(path, hf_named_options(request), decisions); });
     },
     dcp_target},
    {Format::kDeepSpeed, "ds", "a ds checkpoint", true, deepspeed_sign,
     [](const std::string& path, const SourceRequest& request, Decisions& decisions) {
       return open_either<Format::kDeepSpeed>(
           path, request, decisions, [&] { return open_deepspeed(path, hf_named_options(request), decisions); });
     },
     nullptr},
    {Format::kUniversal, "ucp", "a ucp checkpoint", true, universal_sign,
     [](const std::string& path, const SourceRequest& request, Decisions& decisions) {
       return open_either<Format::kUniversal>(
           path, request, decisions, [&] { return open_universal(path, hf_named_options(request), decisions); });
     },
     universal_target},
    {Format::kHuggingFaceBin, "hf-bin", "a Hugging Face folder of .bin files", false, nullptr, nullptr, names_alone},
    {Format::kFile, "file", "a file of tensors", false, file_sign, open_as_named, names_alone},
    {Format::kGguf, "gguf", "a gguf file", false, nullptr, nullptr, gguf_target},
};

// A run notes by what its router ranked groups of experts where that makes a difference (train/group_ranking.h).
// transformers has one way, the highest score (modeling_deepseek_v2.py): with another the model would be another.
void refuse_other_ranking(const ckpt::CheckpointInfo& info, const json& config) {
  const json ranking = info.common.value("moe_router_group_ranking", json());
  if (!ranking.is_string() || ranking.get_ref<const std::string&>() != "sum") return;
  if (config.value("topk_method", "") != "group_limited_greedy") return;
  throw Error(
      ErrorCode::kUnsupported,
      "the run that saved this checkpoint ranked groups of experts by the sum of their highest scores, as "
      "Megatron does, and Hugging Face's models by the highest one (topk_method group_limited_greedy): the same "
      "weights would be another model there. Train with --moe-router-load-balancing-type group_limited_greedy, or "
      "convert to one of Megatron's formats");
}

}  // namespace

json result_config(const TargetRequest& request, std::string* copy_from, std::vector<std::string>& decisions) {
  const auto& [source, options] = std::tie(request.source, request.options);
  const core::DType dtype = request.dtype(std::string(kWordEmbeddings));
  const ckpt::CheckpointInfo& info = source.info();
  json original = info.model_extra.value("hf_config", json());
  std::shared_ptr<const Family> held;  // of the map that the source was read with
  const Family* family = request.family;
  if (family == nullptr && info.model_extra.contains("name_map")) {
    const fs::path given = fs::path(options.hf_cfg_dir) / "config.json";
    held =
        family_of_result(options.hf_cfg_dir.empty() ? original : read_json(given.string(), 16 << 20), info.model_extra);
    family = held.get();
  }
  if (!options.hf_cfg_dir.empty()) {
    HfConfig given = read_hf_config(options.hf_cfg_dir, family);
    if (info.model.mtp_num_layers == 0)
      given.model.mtp_num_layers = 0;  // transformers drops such layers and keeps the key
    if (!same_model(given.model, info.model)) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--hf-cfg-dir ", options.hf_cfg_dir, ": its config.json describes another model than ",
                      options.load_dir));
    }
    original = given.original;
    *copy_from = options.hf_cfg_dir;
  } else if (request.from == Format::kHuggingFace) {
    *copy_from = options.load_dir;
  }
  json config = make_hf_config(info.model, original, dtype, family);
  refuse_other_ranking(info, config);
  note_missing_parts(config, source, options, decisions);
  return config;
}

std::span<const FormatRow> formats() { return kFormats; }

const FormatRow& format_row(Format format) {
  const auto row =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const FormatRow& r) { return r.format == format; });
  MS_CHECK(row != std::end(kFormats), "no row for format ", static_cast<int>(format));
  return *row;
}

}  // namespace ms::convert
