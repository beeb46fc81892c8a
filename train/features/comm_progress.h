// Who advances communication while a rank computes, and which groups come first.
// Source: MPI 3.1, section 3.5 (progress); Megatron's --high-priority-stream-groups (megatron/core/parallel_state.py).
#pragma once

#include <string>
#include <vector>

#include "train/features/feature.h"

namespace ms::train {

struct CommProgressConfig {
  std::string comm_progress = "auto";
  std::vector<std::string> high_priority_stream_groups;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = CommProgressConfig;
    field(
        "comm_progress", &C::comm_progress,
        "Who moves messages and reduces while a rank computes: polling, its own thread between panels of its products; "
        "thread, a thread of its own on a core that is free; auto, a thread where every rank has more cores than "
        "--threads-per-rank and MPI allows it. Changes no bit");
    field("high_priority_stream_groups", &C::high_priority_stream_groups,
          "Groups whose operations advance before those of others: tp, pp, cp, dp_cp, dp_shard, dp_replica, embedding, "
          "model, ep, etp, ep_outer, etp_ep, expert_dp, expert_dp_shard, expert_dp_replica. For those that the next "
          "layer waits for, while another group reduces large buckets");
  }
};

Feature comm_progress_feature();

}  // namespace ms::train
