// The CPUs that a rank's threads may use. mpirun binds ranks to cores if it starts few of them; a second compute thread
// on such a core only halves the speed of the first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace ms::core {

// Two integers, so that one small all-gather exchanges those of all ranks.
struct RankCpus {
  int64_t place = 0;  // hash, equal for ranks of one host that may use the same CPUs
  int64_t count = 0;  // CPUs that its threads may use; 0 if unknown
};

// The CPUs of the calling thread and of every thread that it starts.
RankCpus cpus_of_this_thread();

// Divides the CPUs of the calling thread evenly among the threads of a task, so that no two run on the same one: the
// kernel often starts a thread on the CPU of the one that creates it, and moves a thread to the CPU of the one that
// wakes it, if it takes the idle CPUs for busy (as in a virtual machine, where an idle CPU is one that does not run).
// It corrects this only after several milliseconds. For threads that take their work from a common list: one whose CPU
// is busy with another process takes less of it. Does nothing if there are more threads than CPUs.
class CpuShares {
 public:
  // threads: of the task. The caller is thread 0, and has its share until the destructor, which it calls too.
  explicit CpuShares(int threads);
  ~CpuShares();
  CpuShares(const CpuShares&) = delete;
  CpuShares& operator=(const CpuShares&) = delete;

  // Moves thread `number` of the task to its share. Call it right after the start of the thread, from the one that
  // started it: the thread itself may have to wait for the CPU of that one before it can ask for another.
  void place(std::thread& thread, int number) const;

 private:
  std::span<const int> share(int number) const;

  std::vector<int> cpus_;  // thread 0's present one first; empty: not divided
  int threads_;
};

// Cores of each rank: the CPUs it may use, divided by the number of ranks that may use the same ones. At least 1; 0 if
// unknown.
std::vector<int> cores_of_ranks(std::span<const RankCpus> ranks);

// Returns "" unless a rank with several threads has fewer cores than threads; otherwise the problem and the cure. Ranks
// whose cores are unknown are skipped. cores, threads: one value per rank.
std::string explain_shortage(std::span<const int> cores, std::span<const int> threads);

}  // namespace ms::core
