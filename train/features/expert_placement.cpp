#include "train/features/expert_placement.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kPlacement = "--enable-expert-placement";
constexpr const char* kFineGrained = "--enable-fine-grained-expert-placement";
constexpr const char* kPlacementFreq = "--expert-placement-freq";
constexpr const char* kPlacementThreshold = "--fine-grained-expert-placement-thre";

bool gives_placement(const TrainerConfig& config) { return config.training.enable_expert_placement; }
bool gives_fine_grained(const TrainerConfig& config) { return config.training.enable_fine_grained_expert_placement; }

std::vector<Rule> rules_of_placement() {
  return {needs(kPlacement, gives_placement, "--expert-model-parallel-size above 1",
                [](const TrainerConfig& c) { return expert_model_parallel_size(c.parallel) > 1; }),
          needs(
              kPlacementFreq, [](const TrainerConfig& c) { return c.training.expert_placement_freq != 50; }, kPlacement,
              gives_placement),
          needs(kFineGrained, gives_fine_grained, kPlacement, gives_placement),
          needs(
              kPlacementThreshold,
              [](const TrainerConfig& c) { return c.training.fine_grained_expert_placement_thre != 0.08; },
              kFineGrained, gives_fine_grained),
          needs(
              "--print-expert-load", [](const TrainerConfig& c) { return c.training.print_expert_load; },
              "--num-experts", [](const TrainerConfig& c) { return c.model.has_experts(); }),
          excludes(
              kPlacement, gives_placement, "--non-persistent-ckpt-type local",
              [](const TrainerConfig& c) { return c.checkpoint.non_persistent_ckpt_type == "local"; },
              ", whose parts are those of the experts that a rank begins with: leave one of both out"),
          excludes(
              kPlacement, gives_placement, "--outer-dp-sharding-strategy optim",
              [](const TrainerConfig& c) { return c.parallel.outer_dp_sharding_strategy == "optim"; },
              ": the state of an expert that leaves is gathered within an instance; give no_shard")};
}

void check_placement(const TrainerConfig& config, int /*world_size*/) {
  require(config.training.expert_placement_freq >= 1, kPlacementFreq, " ", config.training.expert_placement_freq,
          ": at least 1 step");
  require(config.training.fine_grained_expert_placement_thre > 0, kPlacementThreshold, " ",
          config.training.fine_grained_expert_placement_thre, ": give a positive number");
}

}  // namespace

bool places_experts(const TrainerConfig& config) {
  return gives_placement(config) && config.model.has_experts() && expert_model_parallel_size(config.parallel) > 1;
}

Feature expert_placement_feature() {
  return {
      .name = "expert-placement",
      .level = 2,
      .effect =
          "Moves experts between the ranks of their layer every few steps, so that hot ones are not together and ranks "
          "wait less for each other; results are the same but for the order of sums over ranks",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<ExpertPlacementConfig>("training", config.training); },
      .is_active = places_experts,
      .rules = rules_of_placement(),
      .check = check_placement,
  };
}

}  // namespace ms::train
