#include "core/affinity.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/error.h"
#include "kernels/checksum.h"

namespace ms::core {

RankCpus cpus_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {};  // more CPUs than cpu_set_t holds
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  kernels::Xxh3 place;
  place.update(host.data(), host.size());
  place.update(&set, sizeof set);
  return {static_cast<int64_t>(place.digest()), CPU_COUNT(&set)};
}

void continue_apart(int cpu, int steps) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (cpu < 0 || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int count = CPU_COUNT(&allowed);
  if (count < 2 || steps % count == 0) return;
  int target = cpu;
  for (int left = steps % count; left > 0; left -= CPU_ISSET(target, &allowed) ? 1 : 0)
    target = (target + 1) % CPU_SETSIZE;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(target, &one);
  if (::sched_setaffinity(0, sizeof one, &one) == 0) ::sched_setaffinity(0, sizeof allowed, &allowed);
}

std::vector<int> cores_of_ranks(std::span<const RankCpus> ranks) {
  std::map<int64_t, int64_t> sharing;
  for (const RankCpus& rank : ranks) ++sharing[rank.place];
  std::vector<int> cores;
  for (const RankCpus& rank : ranks) {
    const int64_t own = std::max<int64_t>(1, rank.count / sharing[rank.place]);
    cores.push_back(rank.count == 0 ? 0 : static_cast<int>(own));
  }
  return cores;
}

std::string explain_shortage(std::span<const int> cores, std::span<const int> threads) {
  size_t first = 0;
  int short_ranks = 0;
  for (size_t rank = 0; rank < cores.size(); ++rank) {
    if (threads[rank] == 1 || cores[rank] == 0 || threads[rank] <= cores[rank]) continue;
    if (short_ranks++ == 0) first = rank;
  }
  if (short_ranks == 0) return "";
  const int wanted = threads[first], there = cores[first];
  return cat(wanted, " compute threads of rank ", first,
             short_ranks > 1 ? cat(" (and of ", short_ranks - 1, " more)") : "", " share ", there,
             there == 1 ? " core" : " cores", ". Give each rank ", wanted,
             " cores with mpirun --map-by slot:PE=", wanted, " --bind-to core, or use --threads-per-rank ", there);
}

}  // namespace ms::core
