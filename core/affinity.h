// The CPUs that a rank's threads may use: mpirun binds ranks to cores where it starts few of them, and a second thread
// there halves the speed of the first (limits.md, trap 9).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ms::core {

// Where a rank runs.
struct RankCpus {
  std::string host;
  std::vector<int> cpus;  // that its threads may use, rising
};

// Of the calling thread, and of every thread that it starts. cpus is empty where the system does not say.
RankCpus cpus_of_this_thread();

// As text and back, to be told to other ranks: "host 0,1,2". Throws kInvalidArgument.
std::string encode(const RankCpus& cpus);
RankCpus decode_rank_cpus(const std::string& text);

// How many cores are one rank's: those it may use, divided by the ranks of its host that may use the same. At least 1;
// 0 where the system did not say.
int cores_of_rank(std::span<const RankCpus> ranks, size_t rank);

// "": each rank has a core for each of its threads, or one thread. Else what is wrong, and the cure.
std::string explain_shortage(std::span<const RankCpus> ranks, std::span<const int> threads);

}  // namespace ms::core
