#include "train/huggingface_routing.h"

#include "core/error.h"

namespace ms::train {

void take_huggingface_routing(const core::ConfigFields& given, TrainerConfig& config) {
  const core::TransformerConfig& model = config.model;
  if (model.moe_router_group_topk <= 0 || model.moe_router_group_topk >= model.moe_router_num_groups) return;
  const int64_t of_each = model.moe_router_topk / model.moe_router_group_topk;
  if (model.moe_router_score_function == "softmax") {
    if (of_each > 1 && !given.given("moe_router_load_balancing_type"))
      config.training.moe_router_load_balancing_type = {std::string(kGroupLimited)};
  } else if (of_each != 2) {
    throw core::Error(
        core::ErrorCode::kUnsupported,
        core::cat("this model chooses ", model.moe_router_topk, " experts of ", model.moe_router_group_topk,
                  " groups, which transformers ranks by their 2 highest scores, and training here, as "
                  "Megatron, by ",
                  of_each, ": give the model's flags to train it as Megatron does"));
  }
}

}  // namespace ms::train
