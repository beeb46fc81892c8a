// The CPUs that a rank's threads may use: mpirun binds ranks to cores where it starts few of them, and a second thread
// there halves the speed of the first (limits.md, trap 9).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ms::core {

// Two numbers, so that all ranks' travel in one small all-gather.
struct RankCpus {
  int64_t place = 0;  // a hash: the same for ranks of one host that may use the same CPUs
  int64_t count = 0;  // of CPUs that its threads may use; 0 where the system does not say
};

// Of the calling thread, and of every thread that it starts.
RankCpus cpus_of_this_thread();

// How many cores are each rank's: those it may use, divided by the ranks that may use the same. At least 1; 0 where the
// system did not say.
std::vector<int> cores_of_ranks(std::span<const RankCpus> ranks);

// "": each rank has a core for each of its threads, or one thread, or the system did not say. Else what is wrong, and
// the cure. Both by rank.
std::string explain_shortage(std::span<const int> cores, std::span<const int> threads);

}  // namespace ms::core
