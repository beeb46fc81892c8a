#include "train/features/routing_trace.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kRoutingPath = "--moe-routing-trace-path";
constexpr const char* kRoutingIters = "--moe-routing-trace-max-training-iters";

bool traces_routing(const TrainerConfig& config) { return !config.logger.moe_routing_trace_path.empty(); }

}  // namespace

Feature routing_trace_feature() {
  return {
      .name = "routing-trace",
      .level = 0,
      .effect = "Writes which experts the tokens of each layer choose, in Megatron's format",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<RoutingTraceConfig>("logger", config.logger); },
      .is_active = traces_routing,
      .rules = {needs(kRoutingPath, traces_routing, "--num-experts",
                      [](const TrainerConfig& c) { return c.model.has_experts(); }),
                needs(
                    kRoutingIters,
                    [](const TrainerConfig& c) { return c.logger.moe_routing_trace_max_training_iters.has_value(); },
                    kRoutingPath, traces_routing)},
      .check =
          [](const TrainerConfig& config, int) {
            const int64_t iterations = config.logger.moe_routing_trace_max_training_iters.value_or(1);
            require(iterations >= 1, kRoutingIters, " ", iterations, ": at least 1 iteration");
          },
  };
}

}  // namespace ms::train
