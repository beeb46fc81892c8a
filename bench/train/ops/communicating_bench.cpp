// How much of their communication the operators that communicate hide: two ranks, as threads, on a link that is as slow
// as their products are long.
//
// hidden = (time in one part - time in four) / min(communication, products), in percent, of the medians of alternated
// runs. Communication is what the link adds in one part. Of a sum the last part has no product beside it: 75 % is all.
// A gather's "one part" is a gather and a product apart, because the operator multiplies its own rows beside one part,
// too. The parts of products of experts are the experts: one, or four of a quarter of the tokens. Needs two free cores;
// others make it meaningless.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "bench/median.h"
#include "core/comm/communicator.h"
#include "core/trace/span.h"
#include "tests/support/thread_comm.h"
#include "train/ops/alltoall_bmm.h"
#include "train/ops/grouped_mat_mul_all_reduce.h"
#include "train/ops/lcal_coc.h"
#include "train/ops/mm_all_reduce_add_rms_norm.h"

namespace ms::ops {
namespace {

using core::Communicator;
using core::Tensor;
using core::TensorView;

constexpr int64_t kTokens = 1024, kHidden = 768, kHalf = kTokens / 2;
constexpr int64_t kParts = 4;
constexpr int kRuns = 7;
constexpr double kTokenBytes = kHidden * 4.0;

struct Operands {
  explicit Operands(core::Arena& arena)
      : x(zeros(arena, {kTokens, kHidden})),
        weight(zeros(arena, {kParts, kHidden, kHidden})),
        y(zeros(arena, {kTokens, kHidden})),
        gathered(zeros(arena, {kTokens, kHidden})),
        gamma(zeros(arena, {kHidden})) {}
  static Tensor zeros(core::Arena& arena, core::Dims shape) {
    return Tensor::zeros(arena, core::DType::kFp32, std::move(shape), core::MemoryTag::kAct);
  }
  TensorView matrix() const { return weight.view().rows(0, 1).reshaped({kHidden, kHidden}); }
  Tensor x, weight, y, gathered, gamma;
};

struct Case {
  const char* name;
  void (*run)(Context&, const Operands&, Communicator& world, Communicator& alone, int64_t parts);
  double sent_bytes;  // by each of the two ranks
};

void norm_of_sum(Context& context, const Operands& of, Communicator& world, Communicator&, int64_t parts) {
  npu_mm_all_reduce_add_rms_norm_(context, of.x, of.matrix(), of.y, of.gamma, world, {.comm_turn = parts});
}
void sum_of_groups(Context& context, const Operands& of, Communicator& world, Communicator&, int64_t parts) {
  const TensorView x = of.x, weight = of.matrix();
  npu_grouped_mat_mul_all_reduce(context, {&x, 1}, {&weight, 1}, world, {.comm_turn = parts});
}
void all_reduce(Context& context, const Operands& of, Communicator& world, Communicator&, int64_t parts) {
  coc_ops::matmul_all_reduce(context, of.x, of.matrix(), of.y, world, {.parts = parts});
}
void reduce_scatter(Context& context, const Operands& of, Communicator& world, Communicator&, int64_t parts) {
  coc_ops::matmul_reduce_scatter(context, of.x, of.matrix(), of.y.view().rows(0, kHalf), world, {.parts = parts});
}
void all_gather(Context& context, const Operands& of, Communicator& world, Communicator&, int64_t parts) {
  const TensorView own = of.x.view().rows(0, kHalf);
  if (parts > 1) return coc_ops::all_gather_matmul(context, own, of.matrix(), of.y, world, {.parts = parts});
  world.allgather(own, of.gathered);
  coc_ops::pure_matmul(context, of.gathered, of.matrix(), of.y);
}
void to_experts(Context& context, const Operands& of, Communicator& world, Communicator& alone, int64_t parts) {
  npu_alltoall_allgather_bmm(context, of.x.view().reshaped({2 * parts, kHalf / parts, kHidden}),
                             of.weight.view().rows(0, parts), world, alone, {.shard_type = 1});
}
void from_experts(Context& context, const Operands& of, Communicator& world, Communicator& alone, int64_t parts) {
  npu_bmm_reducescatter_alltoall(context, of.x.view().reshaped({parts, kTokens / parts, kHidden}),
                                 of.weight.view().rows(0, parts), world, alone, {.shard_type = 1});
}

const Case kCases[] = {
    {"npu_mm_all_reduce_add_rms_norm_", norm_of_sum, kTokens* kTokenBytes},
    {"npu_grouped_mat_mul_all_reduce", sum_of_groups, kTokens* kTokenBytes},
    {"matmul_all_reduce", all_reduce, kTokens* kTokenBytes},
    {"matmul_reduce_scatter", reduce_scatter, kHalf* kTokenBytes},
    {"all_gather_matmul", all_gather, kHalf* kTokenBytes},
    {"npu_alltoall_allgather_bmm", to_experts, kHalf* kTokenBytes},
    {"npu_bmm_reducescatter_alltoall", from_experts, kHalf* kTokenBytes},
};

class Products : public OperatorObserver {
 public:
  void on_operator(std::string_view name, const std::vector<core::Dims>& /*inputs*/, int64_t /*flops*/,
                   int64_t /*bytes*/, int64_t dur_ns) override {
    if (name == "matmul") seconds += static_cast<double>(dur_ns) * 1e-9;
  }
  double seconds = 0;
};

struct Times {
  double all = 0, products = 0;  // seconds of one call
};

Times times_of(const Case& of, int64_t parts, core::LinkDelay link) {
  Times times;
  test::run_thread_ranks(
      2,
      [&](core::Endpoint& endpoint) {
        core::ThreadPool pool(1);
        core::Arena arena;
        Products products;
        Context context{pool, arena};
        context.observer = &products;
        Communicator world(endpoint, "world", {0, 1}, 0), alone(endpoint, "alone", {endpoint.rank()}, 1);
        const Operands operands(arena);
        std::vector<double> all;
        for (int run = 0; run < kRuns; ++run) {
          world.barrier();
          const int64_t begin = core::trace::now_ns();
          of.run(context, operands, world, alone, parts);
          all.push_back(static_cast<double>(core::trace::now_ns() - begin) * 1e-9);
        }
        if (endpoint.rank() == 0) times = {bench::median(all), products.seconds / kRuns};
      },
      60, link);
  return times;
}

void hidden_share(benchmark::State& state, const Case& of) {
  times_of(of, 1, {});  // the machine's clock rises
  const core::LinkDelay link{.latency_s = 2e-5, .bytes_per_s = of.sent_bytes / times_of(of, 1, {}).products};
  std::vector<double> near, products, off, on;
  for (auto _ : state) {
    const Times without_link = times_of(of, 1, {});
    near.push_back(without_link.all);
    products.push_back(without_link.products);
    off.push_back(times_of(of, 1, link).all);
    on.push_back(times_of(of, kParts, link).all);
    state.SetIterationTime(on.back());
  }
  const double t_near = bench::median(near), t_off = bench::median(off), t_on = bench::median(on);
  state.counters["no_link_ms"] = t_near * 1e3;
  state.counters["one_part_ms"] = t_off * 1e3;
  state.counters["four_parts_ms"] = t_on * 1e3;
  state.counters["hidden_percent"] = 100 * (t_off - t_on) / std::min(t_off - t_near, bench::median(products));
}

}  // namespace
}  // namespace ms::ops

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const ms::ops::Case& of : ms::ops::kCases) {
    benchmark::RegisterBenchmark(of.name, [&](benchmark::State& state) { ms::ops::hidden_share(state, of); })
        ->Iterations(4)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
}
