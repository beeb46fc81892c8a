// The CPUs that a rank's threads may use. mpirun binds ranks to cores if it starts few of them; a second compute thread
// on such a core only halves the speed of the first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ms::core {

// Two integers, so that one small all-gather exchanges those of all ranks.
struct RankCpus {
  int64_t place = 0;  // hash, equal for ranks of one host that may use the same CPUs
  int64_t count = 0;  // CPUs that its threads may use; 0 if unknown
};

// The CPUs of the calling thread and of every thread that it starts.
RankCpus cpus_of_this_thread();

// Continues the calling thread on the CPU that comes `steps` after `cpu` (that of sched_getcpu) among those it may use,
// in a circle. Only a hint: from then on the kernel moves the thread as before. For threads that live for milliseconds:
// the kernel often starts a thread on the CPU of the one that creates it, if it takes the idle ones for busy (as in a
// virtual machine, where an idle CPU is one that does not run), and corrects this only after several milliseconds.
void continue_apart(int cpu, int steps);

// Cores of each rank: the CPUs it may use, divided by the number of ranks that may use the same ones. At least 1; 0 if
// unknown.
std::vector<int> cores_of_ranks(std::span<const RankCpus> ranks);

// Returns "" unless a rank with several threads has fewer cores than threads; otherwise the problem and the cure. Ranks
// whose cores are unknown are skipped. cores, threads: one value per rank.
std::string explain_shortage(std::span<const int> cores, std::span<const int> threads);

}  // namespace ms::core
