// A record of what routers choose, for msprof experts and Megatron's tools/moe_routing. Source: Megatron-LM,
// megatron/training/config/training_config.py and megatron/core/transformer/moe/router_trace.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct RoutingTraceConfig {
  std::string moe_routing_trace_path;
  std::optional<int64_t> moe_routing_trace_max_training_iters;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = RoutingTraceConfig;
    field("moe_routing_trace_path", &C::moe_routing_trace_path,
          "Folder for what the routers of each rank choose: router_trace_rankN.jsonl in Megatron's format, a line for "
          "each layer and micro-batch, with the experts of each token (about 4 bytes a choice). msprof experts reads "
          "it. Files of an earlier run are replaced");
    field("moe_routing_trace_max_training_iters", &C::moe_routing_trace_max_training_iters,
          "With --moe-routing-trace-path: end after so many iterations. Default: all");
  }
};

Feature routing_trace_feature();

}  // namespace ms::train
