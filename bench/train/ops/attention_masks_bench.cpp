// Attention of what a mask leaves: masks/<mask>/threads:<n>, forward and backward of 8192 positions in real time, in
// turns with causal attention of the same. `x causal` is how many times faster it is, `x scores` how many times fewer
// scores it has to compute. A window of 128 keys fails below 10 times, documents of 512 and blocks of a grid as large
// below 5, a grid of drawn cells of 128, an eighth of all, below 4.
#include <cmath>
#include <vector>

#include "bench/train/ops/in_context.h"
#include "bench/train/ops/random_tensor.h"
#include "core/rng.h"
#include "core/tensor.h"
#include "train/ops/attention.h"

namespace ms::ops {
namespace {

constexpr int64_t kSeq = 8192, kHeads = 2, kD = 64, kWindow = 128, kDocument = 512;

// same_rows: the first ones, which see what causal ones see.
void against_causal(benchmark::State& state, Context& context, const AttentionParams& params, int64_t same_rows,
                    double least) {
  const core::Dims shape = {kSeq, 1, kHeads, kD};
  const auto q = random_tensor(context.arena, shape), k = random_tensor(context.arena, shape);
  const auto v = random_tensor(context.arena, shape), dout = random_tensor(context.arena, shape);
  const AttentionParams causal{.scale = params.scale};
  const auto pass = [&](const AttentionParams& of) {
    AttentionResult result = causal_attention(context, q, k, v, of);
    causal_attention_backward(context, dout, q, k, v, result.out, result.lse, of);
    return result;
  };
  const auto flops_of = [&](const AttentionParams& of) {
    const int64_t before = context.flops;
    pass(of);
    return static_cast<double>(context.flops - before);
  };
  const auto first = pass(params), other = pass(causal);
  for (int64_t i = 0; i < same_rows * kHeads * kD; ++i) {
    if (!(std::abs(first.out.data<float>()[i] - other.out.data<float>()[i]) < 1e-5))
      return state.SkipWithError("wrong result");
  }
  const double flops = flops_of(params);
  state.counters["x scores"] = flops_of(causal) / flops;
  const double times = bench::in_turns(
      state, [&] { pass(params); }, [&] { pass(causal); });
  state.counters["x causal"] = times;
  bench::report_flops(state, flops, context.pool.num_threads());
  if (times < least) state.SkipWithError(core::cat("only ", times, " times faster than causal").c_str());
}

void window(benchmark::State& state, Context& context) {
  against_causal(state, context, {.scale = 0.125, .window = kWindow}, kWindow, 10);
}

void documents(benchmark::State& state, Context& context) {
  std::vector<int64_t> ends;
  for (int64_t end = kDocument; end <= kSeq; end += kDocument) ends.push_back(end);
  against_causal(state, context, {.scale = 0.125, .document_ends = ends}, kDocument, 5);
}

// A causal grid of cells of 128 positions.
template <class Sees>
void grid(benchmark::State& state, Context& context, const Sees& sees, int64_t same_rows, double least) {
  constexpr int32_t kCell = 128, kCells = kSeq / kCell;
  std::vector<kernels::QuerySpan> spans;
  std::vector<kernels::KeyRun> runs;
  for (int32_t query = 0; query < kCells; ++query) {
    for (int32_t key = 0; key <= query; ++key)
      if (sees(query, key)) runs.push_back({key * kCell, kCell, key * kCell});
    spans.push_back({query * kCell, kCell, query * kCell, static_cast<int32_t>(runs.size())});
  }
  against_causal(state, context, {.scale = 0.125, .runs = {spans.data(), runs.data(), kCells, true}}, same_rows, least);
}

void blocks(benchmark::State& state, Context& context) {
  const auto sees = [](int32_t query, int32_t key) { return query / 4 == key / 4; };
  grid(state, context, sees, kDocument, 5);
}

void drawn(benchmark::State& state, Context& context) {
  const core::Rng rng(1, "cells");
  const auto sees = [&](int32_t query, int32_t key) {
    return query == key || rng.below(static_cast<uint64_t>(query * 64 + key), 8) == 0;
  };
  grid(state, context, sees, 128, 4);
}

constexpr NamedBench kBenches[] = {
    {"window:128", window}, {"documents:512", documents}, {"grid:512", blocks}, {"grid:drawn", drawn}};

}  // namespace
}  // namespace ms::ops

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ms::core::flush_denormals_in_this_thread();
  ms::ops::register_in_context("masks", ms::ops::kBenches);
  benchmark::RunSpecifiedBenchmarks();
}
