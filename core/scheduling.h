// Where and how eagerly a thread runs: for work beside the training.
#pragma once

#include <string_view>
#include <vector>

namespace ms::core {

// "0-3,7": the CPUs of a list as taskset and numactl write it. Throws kInvalidArgument.
std::vector<int> parse_cpu_list(std::string_view text);

// The calling thread alone, which becomes batch work where the system has that (sched(7)): what wakes it is not
// preempted by it. nice: 0 to 19, added to the process's. cpus: empty leaves the thread where it is. What the system
// refuses of these is a warning in the log: it changes the pace, not the result.
void schedule_this_thread(int nice, const std::vector<int>& cpus);

}  // namespace ms::core
