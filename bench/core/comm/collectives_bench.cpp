// Collectives in shared memory and by messages, compared with MPI's on the same buffers:
//
//   mpirun -n 2 --bind-to core build/bench/bench.core.comm.collectives [ROUNDS]
//
// Each line: bytes of the whole buffer, microseconds of one operation (the slowest rank's; median of rounds in which
// the kinds take turns), and the time of the best MPI form divided by ours. MPI_Allreduce and its in-place form; of a
// reduce-scatter MPI_Reduce_scatter_block. memory: the time of four times the buffer's bytes at the bandwidth of a copy
// by all ranks at once, in the same rounds. Sums are checked.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "bench/median.h"
#include "core/arena.h"
#include "core/comm/communicator.h"
#include "core/comm/mpi_transport.h"
#include "core/error.h"
#include "core/trace/recorder.h"

namespace ms {
namespace {

using core::Tensor;

struct Ranks {
  Ranks(core::MpiSession& session, core::Arena& arena, bool shared) : endpoint(session.transport(), {}) {
    if (shared) endpoint.share_memory(arena.share({core::MemoryTag::kParam, core::MemoryTag::kGrad}));
    std::vector<int> all(static_cast<size_t>(endpoint.size()));
    std::iota(all.begin(), all.end(), 0);
    world = std::make_unique<core::Communicator>(endpoint, "world", all, 0);
  }
  core::Endpoint endpoint;
  std::unique_ptr<core::Communicator> world;
};

// Seconds of one operation on the slowest rank.
double seconds_of(const std::function<void()>& operation, int repeats) {
  MPI_Barrier(MPI_COMM_WORLD);
  const int64_t begin = core::trace::now_ns();
  for (int i = 0; i < repeats; ++i) operation();
  double seconds = static_cast<double>(core::trace::now_ns() - begin) * 1e-9 / repeats;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

struct Kind {
  const char* name;
  std::function<void()> operation;
  std::vector<double> seconds = {};
};

std::vector<double> medians(std::vector<Kind>& kinds, int64_t bytes, int rounds) {
  const int repeats = static_cast<int>(std::clamp<int64_t>((int64_t{32} << 20) / bytes, 1, 2000));
  for (int round = 0; round < rounds + 1; ++round) {
    for (Kind& kind : kinds) {
      const double seconds = seconds_of(kind.operation, repeats);
      if (round > 0) kind.seconds.push_back(seconds);  // the first one touches pages
    }
  }
  std::vector<double> values;
  for (Kind& kind : kinds) values.push_back(bench::median(kind.seconds));
  return values;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s: wrong result\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

void compare(Ranks& shared, Ranks& sent, core::Arena& arena, int64_t bytes, int rounds) {
  const int n = shared.world->size(), rank = shared.world->rank();
  const int64_t count = bytes / 4 / n * n, each = count / n;
  const auto of_tag = [&](core::MemoryTag tag, int64_t elements) {
    return Tensor::zeros(arena, core::DType::kFp32, {elements}, tag);
  };
  Tensor data = of_tag(core::MemoryTag::kGrad, count), other = of_tag(core::MemoryTag::kGrad, count);
  Tensor block = of_tag(core::MemoryTag::kParam, each);
  std::fill_n(data.data<float>(), count, static_cast<float>(rank + 1));
  shared.world->allreduce(data);
  require(data.data<float>()[count - 1] == static_cast<float>(n * (n + 1) / 2), "all-reduce");
  std::fill_n(data.data<float>(), count, 0.0F);  // stays as it is, however often it is added up
  float* const values = data.data<float>();
  float* const result = other.data<float>();
  const auto elements = static_cast<int>(count), part = static_cast<int>(each);

  std::vector<Kind> kinds = {
      {"shared", [&] { shared.world->allreduce(data); }},
      {"messages", [&] { sent.world->allreduce(data); }},
      {"MPI", [&] { MPI_Allreduce(values, result, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
      {"MPI in place", [&] { MPI_Allreduce(MPI_IN_PLACE, values, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
      {"copy", [&] { std::memcpy(result, values, static_cast<size_t>(count) * 4); }},
      {"reduce-scatter", [&] { shared.world->reduce_scatter(data, block); }},
      {"MPI", [&] { MPI_Reduce_scatter_block(values, block.data<float>(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
      {"all-gather", [&] { shared.world->allgather(block, data); }},
      {"MPI", [&] { MPI_Allgather(block.data<float>(), part, MPI_FLOAT, values, part, MPI_FLOAT, MPI_COMM_WORLD); }},
  };
  const std::vector<double> s = medians(kinds, count * 4, rounds);
  if (rank != 0) return;
  const double memory = s[4] * 2 / n;  // a copy moves twice the buffer's bytes on each rank
  std::printf("%10lld  %9.1f %9.1f %9.1f %9.1f %6.2f  %9.1f %6.2f  %9.1f %9.1f %6.2f  %9.1f %9.1f %6.2f\n",
              static_cast<long long>(count * 4), s[0] * 1e6, s[1] * 1e6, s[2] * 1e6, s[3] * 1e6,
              std::min(s[2], s[3]) / s[0], memory * 1e6, memory / s[0], s[5] * 1e6, s[6] * 1e6, s[6] / s[5], s[7] * 1e6,
              s[8] * 1e6, s[8] / s[7]);
  std::fflush(stdout);
}

int run(core::MpiSession& session, int rounds) {
  core::Arena arena;
  Ranks shared(session, arena, true), sent(session, arena, false);
  if (!shared.world->shares_memory()) {
    std::fprintf(stderr, "the ranks share no memory: run at least two on one machine\n");
    return 1;
  }
  if (shared.world->rank() == 0) {
    std::printf("%10s  %9s %9s %9s %9s %6s  %9s %6s  %9s %9s %6s  %9s %9s %6s\n", "bytes", "shared", "messages", "MPI",
                "in place", "ratio", "memory", "ratio", "red.-scat", "MPI", "ratio", "gather", "MPI", "ratio");
  }
  for (const int64_t bytes : {int64_t{1} << 10, int64_t{64} << 10, int64_t{1} << 20, int64_t{16} << 20,
                              int64_t{64} << 20, int64_t{256} << 20})
    compare(shared, sent, arena, bytes, rounds);
  return 0;
}

}  // namespace
}  // namespace ms

int main(int argc, char** argv) {
  ms::core::MpiSession session;
  return ms::run(session, argc > 1 ? std::atoi(argv[1]) : 9);
}
