#include "core/affinity.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/error.h"
#include "kernels/checksum.h"

namespace ms::core {
namespace {

// A hint: a failure changes nothing but speed.
void allow(pthread_t thread, std::span<const int> cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  ::pthread_setaffinity_np(thread, sizeof set, &set);
}

}  // namespace

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

CpuShares::CpuShares(int threads) : threads_(threads) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int here = ::sched_getcpu();
  if (threads < 2 || here < 0 || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  if (CPU_COUNT(&allowed) < threads) return;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    const int cpu = (here + i) % CPU_SETSIZE;
    if (CPU_ISSET(cpu, &allowed)) cpus_.push_back(cpu);
  }
  allow(::pthread_self(), share(0));
}

CpuShares::~CpuShares() { allow(::pthread_self(), cpus_); }

void CpuShares::place(std::thread& thread, int number) const { allow(thread.native_handle(), share(number)); }

std::span<const int> CpuShares::share(int number) const {
  const auto count = static_cast<int64_t>(cpus_.size());
  const auto begin = count * number / threads_, end = count * (number + 1) / threads_;
  return std::span(cpus_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
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
