#include "train/group_ranking.h"

#include <string>

#include "core/error.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr const char* kKey = "moe_router_group_ranking";
constexpr const char *kHighest = "highest", *kSum = "sum";  // of the scores of a group

int64_t chosen_of_each_group(const core::TransformerConfig& model) {
  return model.moe_router_topk / model.moe_router_group_topk;
}
bool leaves_groups_out(const core::TransformerConfig& model) {
  return model.moe_router_group_topk > 0 && model.moe_router_group_topk < model.moe_router_num_groups;
}
// Whether both rankings exist and differ.
bool has_two_rankings(const core::TransformerConfig& model) {
  return leaves_groups_out(model) && model.moe_router_score_function == "softmax" && chosen_of_each_group(model) > 1;
}
const char* ranking_of(const TrainerConfig& config) {
  return has_balancing(config.training, kGroupLimited) ? kHighest : kSum;
}

// Of the run that has written `common`.
const char* ranking_in(const nlohmann::json& common) {
  const nlohmann::json& noted = common.at(kKey);
  return noted.is_string() && noted.get_ref<const std::string&>() == kHighest ? kHighest : kSum;
}

void take(const char* ranking, const core::ConfigFields& given, TrainerConfig& config) {
  if (ranking == kHighest && has_two_rankings(config.model) && !given.given("moe_router_load_balancing_type"))
    config.training.moe_router_load_balancing_type = {std::string(kGroupLimited)};
}

}  // namespace

void take_huggingface_group_ranking(const core::ConfigFields& given, TrainerConfig& config) {
  const core::TransformerConfig& model = config.model;
  if (leaves_groups_out(model) && model.moe_router_score_function != "softmax" && chosen_of_each_group(model) != 2) {
    throw Error(ErrorCode::kUnsupported,
                cat("this model chooses ", model.moe_router_topk, " experts of ", model.moe_router_group_topk,
                    " groups, which transformers ranks by their 2 highest scores, and training here, as Megatron, by ",
                    chosen_of_each_group(model), ": give the model's flags to train it as Megatron does"));
  }
  take(kHighest, given, config);
}

void take_group_ranking(const ckpt::CheckpointInfo& info, const core::ConfigFields& given, TrainerConfig& config) {
  if (info.common.contains(kKey)) return take(ranking_in(info.common), given, config);
  if (info.model_extra.contains("hf_config")) take_huggingface_group_ranking(given, config);
}

void check_group_ranking(const ckpt::CheckpointInfo& info, const TrainerConfig& config) {
  if (!has_two_rankings(config.model) || !info.common.contains(kKey)) return;
  if (ranking_in(info.common) == ranking_of(config)) return;
  const bool was_highest = ranking_in(info.common) == kHighest;
  throw Error(ErrorCode::kInvalidArgument,
              cat("the run that saved this checkpoint ranked groups of experts by ",
                  was_highest ? "the highest score" : "the sum of their highest scores",
                  was_highest ? ": give" : ": leave out", " --moe-router-load-balancing-type group_limited_greedy"));
}

void note_group_ranking(const TrainerConfig& config, nlohmann::json& common) {
  if (has_two_rankings(config.model)) common[kKey] = ranking_of(config);
}

}  // namespace ms::train
