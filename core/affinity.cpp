#include "core/affinity.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/scheduling.h"

namespace ms::core {
namespace {

std::string list_of(const std::vector<int>& cpus) {
  std::string text;
  for (const int cpu : cpus) text += cat(text.empty() ? "" : ",", cpu);
  return text;
}

}  // namespace

RankCpus cpus_of_this_thread() {
  RankCpus result;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) result.host = name.data();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return result;  // more CPUs than the set has room for
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) result.cpus.push_back(cpu);
  }
  return result;
}

std::string encode(const RankCpus& cpus) { return cat(cpus.host, ' ', list_of(cpus.cpus)); }

RankCpus decode_rank_cpus(const std::string& text) {
  const size_t space = text.rfind(' ');
  if (space == std::string::npos) throw Error(ErrorCode::kInvalidArgument, cat("not a host and its CPUs: ", text));
  return {text.substr(0, space), parse_cpu_list(std::string_view(text).substr(space + 1))};
}

int cores_of_rank(std::span<const RankCpus> ranks, size_t rank) {
  const RankCpus& own = ranks[rank];
  if (own.cpus.empty()) return 0;
  const auto sharing = std::count_if(ranks.begin(), ranks.end(), [&](const RankCpus& other) {
    return other.host == own.host && other.cpus == own.cpus;
  });
  return std::max(1, static_cast<int>(own.cpus.size()) / static_cast<int>(sharing));
}

std::string explain_shortage(std::span<const RankCpus> ranks, std::span<const int> threads) {
  size_t first = 0;
  int short_ranks = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const int cores = cores_of_rank(ranks, rank);
    if (cores == 0 || threads[rank] <= cores || threads[rank] == 1) continue;
    if (short_ranks++ == 0) first = rank;
  }
  if (short_ranks == 0) return "";
  const int wanted = threads[first], cores = cores_of_rank(ranks, first);
  return cat(wanted, " compute threads of rank ", first,
             short_ranks > 1 ? cat(" (and of ", short_ranks - 1, " more)") : "", " share ", cores,
             cores == 1 ? " core" : " cores", ": it may use the CPUs ", list_of(ranks[first].cpus), " of ",
             ranks[first].host, ". mpirun --map-by slot:PE=", wanted, " --bind-to core gives each rank ", wanted,
             ", --threads-per-rank ", cores, " uses those it has");
}

}  // namespace ms::core
