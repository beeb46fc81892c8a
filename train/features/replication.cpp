#include "train/features/replication.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature replication_feature() {
  return {
      .name = "replication",
      .level = 0,
      .effect = "Sends each local checkpoint to other ranks too: a run survives the loss of a node",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<ReplicationConfig>("checkpoint", config.checkpoint); },
      .is_active = [](const TrainerConfig& c) { return c.checkpoint.replication; },
      .rules = {needs(
                    "--replication", [](const TrainerConfig& c) { return c.checkpoint.replication; },
                    "--non-persistent-ckpt-type local",
                    [](const TrainerConfig& c) { return !c.checkpoint.non_persistent_ckpt_type.empty(); }),
                needs(
                    "--replication", [](const TrainerConfig& c) { return c.checkpoint.replication; },
                    "--replication-jump", [](const TrainerConfig& c) { return c.checkpoint.replication_jump >= 1; },
                    ", at least 1: how far the next node's ranks are")},
      .check =
          [](const TrainerConfig& c, int world_size) {
            if (!c.checkpoint.replication) return;
            const int64_t jump = c.checkpoint.replication_jump, factor = c.checkpoint.replication_factor;
            require(factor >= 2, "--replication-factor ", factor,
                    ": at least 2, the rank itself and one that has a replica");
            require(jump <= world_size && factor <= world_size && world_size % (jump * factor) == 0,
                    "--replication-jump ", jump, " x --replication-factor ", factor, " must divide the ", world_size,
                    " ranks");
          },
  };
}

}  // namespace ms::train
