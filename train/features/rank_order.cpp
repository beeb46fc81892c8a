#include "train/features/rank_order.h"

#include "train/config.h"

namespace ms::train {

Feature rank_order_feature() {
  return {
      .name = "rank-order",
      .level = 0,
      .effect = "Numbers the stages of a pipeline next to each other instead of the replicas; the results are the same",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<RankOrderConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return c.parallel.use_tp_pp_dp_mapping; },
  };
}

}  // namespace ms::train
