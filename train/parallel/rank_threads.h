// The threads of each rank: those that compute, and one for communication where a core is free for it.
#pragma once

#include "core/comm/communicator.h"
#include "train/config.h"

namespace ms::train {

struct RankThreads {
  int computing = 1;
  bool all_have_a_free_core = false;  // every rank has more cores than threads that compute
};

// Collective. --threads-per-rank, or the number of this rank's cores; warns if a rank has fewer cores than threads.
RankThreads threads_of_ranks(const TrainerConfig& config, core::Communicator& world);

// Does what --comm-progress says, and logs what it does and why. Throws kUnsupported for a thread that MPI does not
// allow.
void start_progress(const TrainerConfig& config, core::Endpoint& endpoint, const RankThreads& threads);

}  // namespace ms::train
