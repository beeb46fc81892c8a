#include "train/parallel/rank_threads.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/affinity.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::train {

RankThreads threads_of_ranks(const TrainerConfig& config, core::Communicator& world) {
  const core::RankCpus own = core::cpus_of_this_thread();
  int64_t mine[] = {own.place, own.count};
  std::vector<int64_t> all(static_cast<size_t>(2 * world.size()));
  world.allgather(core::TensorView(mine, core::DType::kInt64, {2}),
                  core::TensorView(all.data(), core::DType::kInt64, {2 * world.size()}));
  std::vector<core::RankCpus> cpus;
  for (size_t i = 0; i < all.size(); i += 2) cpus.push_back({all[i], all[i + 1]});
  const std::vector<int> cores = core::cores_of_ranks(cpus);
  std::vector<int> threads;
  bool all_have_a_free_core = true;
  for (const int of_rank : cores) {
    threads.push_back(config.training.threads_per_rank > 0 ? config.training.threads_per_rank : std::max(1, of_rank));
    all_have_a_free_core = all_have_a_free_core && of_rank > threads.back();
  }
  if (const std::string shortage = core::explain_shortage(cores, threads); !shortage.empty() && world.rank() == 0) {
    core::log_warning("train.threads", shortage);
  }
  const int computing = threads[static_cast<size_t>(world.rank())];
  core::log_debug("train.threads", core::cat("compute threads: ", computing));
  return {computing, all_have_a_free_core};
}

void start_progress(const TrainerConfig& config, core::Endpoint& endpoint, const RankThreads& threads) {
  const std::string& wanted = config.parallel.comm_progress;
  if (endpoint.size() == 1 || wanted == "polling") return;
  const bool allowed = endpoint.takes_turns();
  if (wanted == "thread" && !allowed) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      "--comm-progress thread: this MPI gives less than MPI_THREAD_SERIALIZED; leave the flag out");
  }
  if (wanted == "thread" || (allowed && threads.all_have_a_free_core)) {
    endpoint.start_progress_thread();
    core::log_info("train.comm",
                   threads.all_have_a_free_core
                       ? "a thread of each rank, on a core that is free, advances communication"
                       : "a thread of each rank advances communication (--comm-progress thread), although "
                         "no core is free for it");
  } else {
    core::log_info("train.comm", core::cat("communication advances between panels of products: ",
                                           allowed ? "no core is free for a thread of its own"
                                                   : "this MPI gives less than MPI_THREAD_SERIALIZED"));
  }
}

}  // namespace ms::train
