#include "train/features/recompute_pipelining.h"

#include "train/config.h"

namespace ms::train {
namespace {

constexpr const char* kInBubble = "--recompute-in-bubble";
constexpr const char* kInAdvance = "--recompute-in-advance";
constexpr const char* kChunks = "virtual stages, such as --num-virtual-stages-per-pipeline-rank 2";

bool in_bubble(const TrainerConfig& config) { return config.training.recompute_in_bubble; }
bool in_advance(const TrainerConfig& config) { return config.training.recompute_in_advance; }
bool recomputes_layers(const TrainerConfig& config) { return config.training.recompute_granularity == "full"; }

}  // namespace

layout::RecomputeTime recompute_time(const RecomputePipeliningConfig& config) {
  if (config.recompute_in_bubble) return layout::RecomputeTime::kInBubble;
  return config.recompute_in_advance ? layout::RecomputeTime::kInAdvance : layout::RecomputeTime::kAtBackward;
}

Feature recompute_pipelining_feature() {
  return {
      .name = "recompute-pipelining",
      .level = 2,
      .effect =
          "Computes dropped activations again as a step of the pipeline's schedule, where the stage would be idle",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<RecomputePipeliningConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return in_bubble(c) || in_advance(c); },
      .rules = {excludes(kInBubble, in_bubble, kInAdvance, in_advance),
                needs(kInBubble, in_bubble, kChunks, is_interleaved),
                needs(kInAdvance, in_advance, kChunks, is_interleaved),
                excludes(
                    kInBubble, in_bubble, "--recompute-granularity",
                    [](const TrainerConfig& c) { return !c.training.recompute_granularity.empty(); },
                    ": it chooses what to recompute by itself"),
                needs(kInAdvance, in_advance, "--recompute-granularity full", recomputes_layers),
                excludes(
                    kInAdvance, in_advance, "--recompute-method uniform",
                    [](const TrainerConfig& c) { return c.training.recompute_method == "uniform"; }, "; use block")},
  };
}

}  // namespace ms::train
