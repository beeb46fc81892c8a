#include "convert/option_uses.h"

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;

class FormatSet {
 public:
  constexpr FormatSet(std::initializer_list<Format> formats) {
    for (const Format format : formats) bits_ |= uint32_t{1} << static_cast<int>(format);
  }
  constexpr bool has(Format format) const { return (bits_ >> static_cast<int>(format) & 1) != 0; }
  constexpr bool empty() const { return bits_ == 0; }

  // "ms, mg and dist"
  std::string names() const {
    std::string text;
    for (uint32_t left = bits_; left != 0; left &= left - 1) {
      const bool is_last = (left & (left - 1)) == 0;
      text += cat(text.empty() ? "" : is_last ? " and " : ", ", format_name(static_cast<Format>(__builtin_ctz(left))));
    }
    return text;
  }

 private:
  uint32_t bits_ = 0;
};

struct OptionUse {
  std::string_view flag;
  bool (*given)(const ConvertOptions& options);
  FormatSet sources, targets;
};

using enum Format;
constexpr FormatSet kNone = {};
constexpr FormatSet kMegatrons = {kMegatron, kMegatronDist};
constexpr FormatSet kWithLayout = {kNative, kMegatron, kMegatronDist};

constexpr FormatSet kOwnNames = {kHuggingFace, kFile, kDcp, kDeepSpeed, kUniversal, kRankFiles};

constexpr OptionUse kUses[] = {
    {"--as-named", [](const ConvertOptions& o) { return o.as_named; }, kOwnNames, kNone},
    {"--rename", [](const ConvertOptions& o) { return !o.names.rename.empty(); }, kOwnNames, kNone},
    {"--include", [](const ConvertOptions& o) { return !o.names.include.empty(); }, kOwnNames, kNone},
    {"--exclude", [](const ConvertOptions& o) { return !o.names.exclude.empty(); }, kOwnNames, kNone},
    {"--true-vocab-size", [](const ConvertOptions& o) { return o.true_vocab_size != 0; }, kMegatrons, kNone},
    {"--name-map", [](const ConvertOptions& o) { return !o.name_map.empty(); }, {kHuggingFace}, {kHuggingFace}},
    {"--passthrough", [](const ConvertOptions& o) { return !o.passthrough.empty(); }, {kHuggingFace}, kNone},
    {"--passthrough-from",
     [](const ConvertOptions& o) { return !o.passthrough_from.empty(); },
     {kNative, kMegatron, kMegatronDist, kHuggingFace, kDcp, kDeepSpeed, kUniversal, kRankFiles},
     kNone},
    {"--allow-custom-model", [](const ConvertOptions& o) { return o.allow_custom_model; }, kNone, kMegatrons},
    {"--hf-cfg-dir",
     [](const ConvertOptions& o) { return !o.hf_cfg_dir.empty(); },
     {kMegatron, kDcp, kDeepSpeed, kUniversal, kMeta, kRankFiles},
     {kHuggingFace, kHuggingFaceBin, kGguf, kDcp, kUniversal}},
    {"--noop-layers", [](const ConvertOptions& o) { return !o.extras.noop_layers.empty(); }, {kMegatron}, {kMegatron}},
    {"--schedules-method", [](const ConvertOptions& o) { return o.extras.dualpipev; }, {kMegatron}, {kMegatron}},
    {"--compress", [](const ConvertOptions& o) { return o.compress; }, kNone, {kNative}},
    {"--max-shard-size",
     [](const ConvertOptions& o) { return o.max_shard_size_bytes.has_value(); },
     kNone,
     {kHuggingFace, kHuggingFaceBin, kFile}},
    {"an optimizer setting (--lr, --weight-decay, --adam-beta1, ..)",
     [](const ConvertOptions& o) { return o.optimizer.any(); },
     kNone,
     {kNative, kMegatron, kMegatronDist, kDcp, kUniversal}},
    {"--target-norm-naming", [](const ConvertOptions& o) { return o.target_norm_naming.has_value(); }, kNone,
     kMegatrons},
    {"--mg-args", [](const ConvertOptions& o) { return o.mg_args.has_value(); }, kNone, kMegatrons},
    {"--moe-grouped-gemm", [](const ConvertOptions& o) { return o.moe_grouped_gemm; }, kNone, kMegatrons},
    {"--use-distributed-optimizer", [](const ConvertOptions& o) { return o.use_distributed_optimizer; }, kNone,
     kMegatrons},
    {"--make-vocab-size-divisible-by", [](const ConvertOptions& o) { return o.make_vocab_size_divisible_by != 0; },
     kNone, kMegatrons},
    {"--dtype q8_0", [](const ConvertOptions& o) { return o.q8_0; }, kNone, {kGguf}},
    {"--target-data-parallel-size",
     [](const ConvertOptions& o) { return o.target_data_parallel_size != 1; },
     kNone,
     {kDcp}},
    {"--target-tensor-parallel-size", [](const ConvertOptions& o) { return o.target_tensor_parallel_size != 1; }, kNone,
     kWithLayout},
    {"--target-pipeline-parallel-size", [](const ConvertOptions& o) { return o.target_pipeline_parallel_size != 1; },
     kNone, kWithLayout},
    {"--num-layers-per-virtual-pipeline-stage",
     [](const ConvertOptions& o) { return o.num_layers_per_virtual_pipeline_stage != 0; }, kNone, kWithLayout},
    {"--num-layer-list", [](const ConvertOptions& o) { return !o.num_layer_list.empty(); }, kNone, kWithLayout},
    {"--target-expert-parallel-size", [](const ConvertOptions& o) { return o.target_expert_parallel_size != 1; }, kNone,
     kWithLayout},
    {"--expert-tensor-parallel-size", [](const ConvertOptions& o) { return o.expert_tensor_parallel_size.has_value(); },
     kNone, kWithLayout},
    {"--moe-tp-extend-ep", [](const ConvertOptions& o) { return o.moe_tp_extend_ep; }, kNone, kWithLayout},
};

}  // namespace

void refuse_options_without_effect(const ConvertOptions& options, Format from, Format to) {
  for (const OptionUse& use : kUses) {
    if (!use.given(options) || use.sources.has(from) || use.targets.has(to)) continue;
    const std::string of_sources = use.sources.empty() ? "" : cat(use.sources.names(), " sources");
    const std::string of_targets = use.targets.empty() ? "" : cat(use.targets.names(), " results");
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        cat(use.flag, " applies to ", of_sources, of_sources.empty() || of_targets.empty() ? "" : ", and to ",
            of_targets, "; this converts ", format_name(from), " to ", format_name(to)));
  }
  if (options.extras.dualpipev && options.num_layers_per_virtual_pipeline_stage != 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      "--schedules-method dualpipev gives each stage two chunks: leave "
                      "--num-layers-per-virtual-pipeline-stage out");
  }
}

}  // namespace ms::convert
