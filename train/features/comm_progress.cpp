#include "train/features/comm_progress.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature comm_progress_feature() {
  return {
      .name = "comm-progress",
      .level = 0,
      .effect = "Advances communication beside computation, on a thread of its own or between panels of products",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<CommProgressConfig>("parallel", config.parallel); },
      .is_active =
          [](const TrainerConfig& c) {
            return c.parallel.comm_progress == "thread" || !c.parallel.high_priority_stream_groups.empty();
          },
      .check =
          [](const TrainerConfig& c, int /*world_size*/) {
            require_one_of("--comm-progress", c.parallel.comm_progress, {"auto", "polling", "thread"});
            for (const std::string& group : c.parallel.high_priority_stream_groups) {
              require_one_of("--high-priority-stream-groups", group,
                             {"tp", "pp", "cp", "dp_cp", "dp_shard", "dp_replica", "embedding", "model", "ep", "etp",
                              "ep_outer", "etp_ep", "expert_dp", "expert_dp_shard", "expert_dp_replica"});
            }
          },
  };
}

}  // namespace ms::train
