// CPU placement and priority of background threads that run beside the training.
#pragma once

#include <string_view>
#include <vector>

namespace ms::core {

// Parses a CPU list such as "0-3,7", as taskset and numactl write it. Throws kInvalidArgument.
std::vector<int> parse_cpu_list(std::string_view text);

// Applies to the calling thread only, which becomes batch work if the system supports that (sched(7)): it does not
// preempt the threads that wake it. nice: 0 to 19, added to the process's. cpus: empty keeps the thread's CPUs. What
// the system refuses is logged as a warning: it affects speed, not results.
void schedule_this_thread(int nice, const std::vector<int>& cpus);

}  // namespace ms::core
