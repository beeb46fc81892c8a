#include "train/features/moe_fb_overlap.h"

#include "train/config.h"

namespace ms::train {
namespace {

constexpr const char* kFbOverlap = "--moe-fb-overlap";

bool gives_fb_overlap(const TrainerConfig& config) { return config.parallel.moe_fb_overlap; }

bool has_pairs(const TrainerConfig& config) {
  return config.parallel.schedules_method == "dualpipev" || is_interleaved(config) ||
         config.parallel.pipeline_model_parallel_size == 1;
}

std::vector<Rule> rules_of_fb_overlap() {
  const char* order = ": it has an order of its own";
  return {needs(kFbOverlap, gives_fb_overlap, "--num-experts",
                [](const TrainerConfig& c) { return c.model.has_experts(); }),
          needs(kFbOverlap, gives_fb_overlap,
                "--schedules-method dualpipev, virtual stages, such as --num-virtual-stages-per-pipeline-rank 2, or "
                "--pipeline-model-parallel-size 1",
                has_pairs, ", where a forward and a backward of other micro-batches are neighbours"),
          needs(kFbOverlap, gives_fb_overlap, "--moe-token-dispatcher-type alltoall",
                [](const TrainerConfig& c) { return !gathers_tokens(c.parallel); }),
          excludes(
              kFbOverlap, gives_fb_overlap, "--use-nanopipe",
              [](const TrainerConfig& c) { return c.parallel.use_nanopipe; }, order),
          excludes(
              kFbOverlap, gives_fb_overlap, "--recompute-in-bubble or --recompute-in-advance",
              [](const TrainerConfig& c) { return c.training.recompute_in_bubble || c.training.recompute_in_advance; },
              ", which stand between the two"),
          excludes(
              kFbOverlap, gives_fb_overlap, "--data-parallel-sharding-strategy optim_grads or optim_grads_params",
              [](const TrainerConfig& c) { return zero_stage(c.parallel) >= 2; },
              ": both micro-batches of a pair use parameters of a stage at once")};
}

}  // namespace

bool interleaves_exchanges(const TrainerConfig& config) {
  return gives_fb_overlap(config) && has_pairs(config) && dispatches_tokens(config);
}

Feature moe_fb_overlap_feature() {
  return {
      .name = "moe-fb-overlap",
      .level = 2,
      .effect =
          "Hides the exchange of tokens with experts of other ranks behind what another micro-batch computes, without "
          "changing a bit, for the activations of one more micro-batch and chunk",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<MoeFbOverlapConfig>("parallel", config.parallel);
            fields.alias("overlap-moe-expert-parallel-comm", "moe_fb_overlap", "true");  // Megatron's name
          },
      .is_active = interleaves_exchanges,
      .rules = rules_of_fb_overlap(),
      .ineffective = {{[](const TrainerConfig& c) {
                         return gives_fb_overlap(c) && c.model.has_experts() && !dispatches_tokens(c);
                       },
                       core::cat(kFbOverlap, " has no effect: no token leaves a rank that has all experts")}},
  };
}

}  // namespace ms::train
