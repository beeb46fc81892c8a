// Operators of a MoE layer except its router: experts/<operator>/threads:<n>, in real time.
//
// Grouped products take turns with loops of one product per group, and report the median of the loop's time divided by
// theirs: `of loop` for ops::linear, which uses the same kernels, `of library loop` for oneDNN's fp32 products (Eigen's
// without oneDNN), each split over the pool as ops::linear splits it, and with one product of as many FLOPs, of all
// rows and the first weight: `of dense`. Permutations take turns with copies of as many rows: %copy is the median of
// the ratios of bytes moved.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/bench_support.h"
#include "bench/train/ops/random_tensor.h"
#include "core/tensor.h"
#include "kernels/gemm/gemm.h"
#include "tests/support/random_values.h"
#include "train/ops/detail/gemm_operand.h"
#include "train/ops/grouped_matmul.h"
#include "train/ops/linear.h"
#include "train/ops/token_permute.h"

namespace ms::ops {
namespace {

struct Experts {
  int64_t groups, rows, in, out;
};

struct Extents {
  int64_t m, n, k;
};

// c [m, n] = a b, by the library behind kernels/gemm/gemm.h: oneDNN, or Eigen in a build without it. a is [m, k]; b is
// [k, n], or [n, k] with transpose_b. If k is below m and n, as for a group's weight gradient, a is [k, m] and c += a
// b.
void library_product(core::ThreadPool& pool, const Extents& extents, const float* a, const float* b, bool transpose_b,
                     float* c) {
  static const kernels::GemmImplementation& library = *[] {
    const auto all = kernels::gemm_implementations();
    const auto named = [&](std::string_view name) {
      return std::find_if(all.begin(), all.end(), [&](const auto* one) { return one->name == name; });
    };
    return named("onednn") != all.end() ? *named("onednn") : *named("eigen");
  }();
  kernels::GemmProblem problem;
  problem.m = extents.m, problem.n = extents.n, problem.k = extents.k;
  problem.transpose_a = problem.accumulate = extents.k < std::min(extents.m, extents.n);
  problem.transpose_b = transpose_b;
  problem.a = a, problem.lda = problem.transpose_a ? extents.m : extents.k;
  problem.b = b, problem.ldb = transpose_b ? extents.k : extents.n;
  problem.c = c, problem.ldc = extents.n;
  if (problem.m >= problem.n) {
    pool.parallel_for(problem.m, detail::kRowGrain,
                      [&](int64_t begin, int64_t end) { library.run(detail::rows_of(problem, begin, end)); });
  } else {
    pool.parallel_for(problem.n, detail::kColumnGrain,
                      [&](int64_t begin, int64_t end) { library.run(detail::columns_of(problem, begin, end)); });
  }
}

void grouped(benchmark::State& state, const std::string& pass, int threads, const Experts& e) {
  core::ThreadPool pool(threads);
  core::Arena arena;
  Context context{pool, arena};
  const int64_t tokens = e.groups * e.rows;
  const auto x = random_tensor(arena, {tokens, e.in}), dy = random_tensor(arena, {tokens, e.out});
  const auto weight = random_tensor(arena, {e.groups, e.out, e.in});
  const auto main_grad = random_tensor(arena, {e.groups, e.out, e.in}), dx = random_tensor(arena, x.shape());
  const auto ends = group_ends(std::vector<int64_t>(static_cast<size_t>(e.groups), e.rows));
  const auto y = grouped_matmul(context, x, weight, ends, GroupedWeight::kOutIn);
  double want = 0;
  for (int64_t i = 0; i < e.in; ++i) want += static_cast<double>(x.data<float>()[i]) * weight.data<float>()[i];
  if (!(std::abs(y.data<float>()[0] - want) < 1e-4)) {
    state.SkipWithError("wrong result");
    return;
  }
  const auto together = [&] {
    if (pass == "fwd") grouped_matmul(context, x, weight, ends, GroupedWeight::kOutIn);
    if (pass == "dgrad") grouped_matmul_dgrad(context, dy, weight, ends, GroupedWeight::kOutIn);
    if (pass == "wgrad") grouped_matmul_add_fp32(context, x, dy, ends, main_grad, GroupedWeight::kOutIn);
  };
  const auto loop = [&] {
    for (int64_t group = 0; group < e.groups; ++group) {
      const auto w = weight.view().rows(group, group + 1).reshaped({e.out, e.in});
      const auto xs = x.view().rows(group * e.rows, (group + 1) * e.rows);
      const auto dys = dy.view().rows(group * e.rows, (group + 1) * e.rows);
      if (pass == "fwd") linear(context, xs, w);
      if (pass == "dgrad") linear_dgrad(context, dys, w);
      if (pass == "wgrad") {
        linear_wgrad(context, xs, dys, main_grad.view().rows(group, group + 1).reshaped({e.out, e.in}));
      }
    }
  };
  const auto library = [&] {
    for (int64_t group = 0; group < e.groups; ++group) {
      const auto at = [&](const core::Tensor& tensor, int64_t elements) {
        return tensor.data<float>() + group * elements;
      };
      float* const xs = at(x, e.rows * e.in);
      float* const ys = at(dy, e.rows * e.out);
      if (pass == "fwd")
        library_product(pool, {e.rows, e.out, e.in}, xs, at(weight, e.out * e.in), true, at(y, e.rows * e.out));
      if (pass == "dgrad")
        library_product(pool, {e.rows, e.in, e.out}, ys, at(weight, e.out * e.in), false, at(dx, e.rows * e.in));
      if (pass == "wgrad") library_product(pool, {e.out, e.in, e.rows}, ys, xs, false, at(main_grad, e.out * e.in));
    }
  };
  const auto first = weight.view().rows(0, 1).reshaped({e.out, e.in});
  const auto dense = [&] {
    if (pass == "fwd") linear(context, x, first);
    if (pass == "dgrad") linear_dgrad(context, dy, first);
    if (pass == "wgrad") linear_wgrad(context, x, dy, main_grad.view().rows(0, 1).reshaped({e.out, e.in}));
  };
  const std::vector<double> ratios = bench::in_turns(state, together, {loop, library, dense});
  state.counters["of loop"] = ratios[0], state.counters["of library loop"] = ratios[1];
  state.counters["of dense"] = ratios[2];
  bench::report_flops(state, 2.0 * static_cast<double>(tokens * e.out * e.in), threads);
}

void permuted(benchmark::State& state, const std::string& name, int threads) {
  constexpr int64_t kTokens = 16384, kTop = 2, kHidden = 2048;  // 134 MB, and twice that permuted
  core::ThreadPool pool(threads);
  core::Arena arena;
  Context context{pool, arena};
  const auto tokens = random_tensor(arena, {kTokens, kHidden});
  core::Tensor indices(arena, core::DType::kInt32, {kTokens, kTop}, core::MemoryTag::kTmp);
  const auto experts = test::RandomValues(1).integers(kTokens * kTop, 0, 63);
  std::copy(experts.begin(), experts.end(), indices.data<int32_t>());
  const auto probs = random_tensor(arena, {kTokens, kTop});
  const core::TensorView p = probs;
  const PermutedTokens there = token_permute(context, tokens, indices);
  const int32_t first = there.sorted_indices.data<int32_t>()[0];
  if (std::memcmp(there.tokens.bytes() + first * kHidden * 4, tokens.bytes(), kHidden * 4) != 0) {
    state.SkipWithError("wrong result");
    return;
  }
  const int64_t moved = tokens.size_bytes() + there.tokens.size_bytes() * (name == "unpermute_backward" ? 2 : 1);
  // A copy that reads and writes as many bytes; the target has been touched before.
  const core::Tensor target = random_tensor(arena, {kTokens * kTop, kHidden});
  const auto copy = [&] {
    pool.parallel_for(kTokens * kTop, 64, [&](int64_t begin, int64_t end) {
      std::memcpy(target.bytes() + begin * kHidden * 4, there.tokens.bytes() + begin * kHidden * 4,
                  static_cast<size_t>((end - begin) * kHidden * 4));
    });
  };
  const auto work = [&] {
    if (name == "permute") token_permute(context, tokens, indices);
    if (name == "permute_backward") token_permute_backward(context, there.tokens, there.sorted_indices, kTokens);
    if (name == "unpermute") token_unpermute(context, there.tokens, there.sorted_indices, &p, kTokens);
    if (name == "unpermute_backward") {
      token_unpermute_backward(context, tokens, there.tokens, there.sorted_indices, &p);
    }
  };
  work();
  const double ratio = bench::in_turns(state, work, copy);
  state.counters["%copy"] = 100 * ratio * static_cast<double>(moved) / static_cast<double>(2 * target.size_bytes());
}

template <class Run>
void add(const std::string& name, int iterations, const Run& run) {
  for (const int threads : {1, 2}) {
    benchmark::RegisterBenchmark(("experts/" + name + "/threads:" + std::to_string(threads)).c_str(),
                                 [=](benchmark::State& state) { run(state, threads); })
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(iterations);
  }
}

}  // namespace

void register_experts() {
  for (const char* pass : {"fwd", "dgrad", "wgrad"}) {
    for (const Experts& e :
         {Experts{64, 32, 512, 512}, Experts{64, 32, 768, 2048}, Experts{8, 512, 768, 2048}, Experts{32, 64, 512, 512},
          Experts{32, 64, 256, 512}, Experts{32, 256, 512, 512}, Experts{32, 256, 256, 512}}) {
      const std::string name =
          core::cat("grouped_matmul/", pass, "/groups:", e.groups, "/rows:", e.rows, "/in:", e.in, "/out:", e.out);
      add(name, 9, [=](benchmark::State& state, int threads) { grouped(state, pass, threads, e); });
    }
  }
  for (const char* name : {"permute", "permute_backward", "unpermute", "unpermute_backward"}) {
    add(name, 9, [=](benchmark::State& state, int threads) { permuted(state, name, threads); });
  }
}

}  // namespace ms::ops

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ms::core::flush_denormals_in_this_thread();
  ms::ops::register_experts();
  benchmark::RunSpecifiedBenchmarks();
}
