// Operators that move rows, in turns with copies of as many bytes: rows/<operator>/threads:<n>; %copy is the median of
// the ratios of bytes moved. 16384 rows of a model's width, 50 MB. And the norm of many tensors.
#include <cmath>
#include <cstring>

#include "bench/train/ops/in_context.h"
#include "bench/train/ops/random_tensor.h"
#include "core/tensor.h"
#include "kernels/roofline.h"
#include "train/ops/elementwise.h"
#include "train/ops/embedding.h"
#include "train/ops/optimizer.h"
#include "train/ops/rotary_position_embedding.h"

namespace ms::ops {
namespace {

constexpr int64_t kRows = 16384, kHeads = 12, kD = 64, kHidden = kHeads * kD, kVocab = 50304;

// moved: bytes that `work` reads and writes.
void beside_copies(benchmark::State& state, Context& context, int64_t moved, const std::function<void()>& work) {
  const auto from = random_tensor(context.arena, {kRows, kHidden}), to = random_tensor(context.arena, from.shape());
  const double ratio = bench::in_turns(state, work, [&] { cast_into(context, from, to); });
  state.counters["%copy"] = 100 * ratio * static_cast<double>(moved) / static_cast<double>(2 * to.size_bytes());
}

struct Rotary {
  explicit Rotary(core::Arena& arena)
      : x(random_tensor(arena, {kRows, 1, kHeads, kD})),
        dy(random_tensor(arena, x.shape())),
        cos(random_tensor(arena, {kRows, 1, 1, kD})),
        sin(random_tensor(arena, cos.shape())) {}
  core::Tensor x, dy, cos, sin;
};

void rotary(benchmark::State& state, Context& context) {
  const Rotary r(context.arena);
  const auto turn = [&] { return npu_rotary_position_embedding(context, r.x, r.cos, r.sin); };
  const float *x = r.x.data<float>(), *cos = r.cos.data<float>(), *sin = r.sin.data<float>();
  if (!(std::abs(turn().data<float>()[3] - (x[3] * cos[3] - x[3 + kD / 2] * sin[3])) < 1e-5)) {
    return state.SkipWithError("wrong result");
  }
  beside_copies(state, context, 2 * (r.x.size_bytes() + r.cos.size_bytes()), turn);
}

void rotary_backward(benchmark::State& state, Context& context) {
  const Rotary r(context.arena);
  const auto turn = [&] {
    return npu_rotary_position_embedding_backward(context, r.dy, r.x, r.cos, r.sin, kernels::RopePairs::kHalves, true);
  };
  double want = 0;  // of the first number of the first table, over the heads
  for (int64_t head = 0; head < kHeads; ++head) {
    want += static_cast<double>(r.dy.data<float>()[head * kD]) * r.x.data<float>()[head * kD];
  }
  if (!(std::abs(turn().dcos.data<float>()[0] - want) < 1e-4)) return state.SkipWithError("wrong result");
  beside_copies(state, context, 3 * r.x.size_bytes() + 4 * r.cos.size_bytes(), turn);
}

std::vector<int32_t> random_ids() { return test::RandomValues(2).integers(kRows, 0, kVocab - 1); }

void gather(benchmark::State& state, Context& context) {
  const auto weight = random_tensor(context.arena, {kVocab, kHidden});
  const std::vector<int32_t> ids = random_ids();
  const auto look_up = [&] { return embedding(context, ids, weight, 0); };
  if (std::memcmp(look_up().bytes(), weight.bytes() + ids[0] * kHidden * 4, kHidden * 4) != 0) {
    return state.SkipWithError("wrong result");
  }
  beside_copies(state, context, 2 * kRows * kHidden * 4, look_up);
}

void scatter_add(benchmark::State& state, Context& context) {
  const auto dy = random_tensor(context.arena, {kRows, kHidden});
  const auto main_grad =
      core::Tensor::zeros(context.arena, core::DType::kFp32, {kVocab, kHidden}, core::MemoryTag::kGrad);
  const std::vector<int32_t> ids = random_ids();
  const auto add = [&] { embedding_backward(context, ids, dy, main_grad, 0); };
  add();
  double want = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    if (ids[static_cast<size_t>(row)] == ids[0]) want += dy.data<float>()[row * kHidden];
  }
  if (!(std::abs(main_grad.data<float>()[ids[0] * kHidden] - want) < 1e-5)) return state.SkipWithError("wrong result");
  beside_copies(state, context, 3 * kRows * kHidden * 4,
                add);  // a row of dy and the old sums read, the new ones written
}

// The gradient norm of 12,288 tensors of 16 Ki elements, as of a model of many experts, in turns with one pass that
// only reads the same 805 MB: %pass is the median of the pass's time over the norm's.
void norm_of_many(benchmark::State& state, Context& context) {
  constexpr int64_t kTensors = 12288, kElements = 16384, kPart = 65536;
  const auto all = random_tensor(context.arena, {kTensors, kElements});
  std::vector<std::span<const float>> tensors;
  for (int64_t i = 0; i < kTensors; ++i)
    tensors.emplace_back(all.data<float>() + i * kElements, static_cast<size_t>(kElements));
  std::vector<double> sums(tensors.size());
  const auto norm = [&] { sums_of_squares(context, tensors, sums); };
  norm();
  double want = 0;
  for (const float value : tensors.back()) want += static_cast<double>(value) * value;
  if (!(std::abs(sums.back() / want - 1) < 1e-6)) return state.SkipWithError("wrong result");
  const kernels::MoveStreams read = kernels::stream_mover(1, 0, /*non_temporal=*/false);
  const kernels::Streams streams{.in = {all.data<float>()}, .out = {}};
  const auto pass = [&] {
    context.pool.parallel_for(all.size() / kPart, 1,
                              [&](int64_t begin, int64_t end) { read(streams, begin * kPart, end * kPart); });
  };
  state.counters["%pass"] = 100 * bench::in_turns(state, norm, pass);
}

constexpr NamedBench kBenches[] = {{"rotary_position_embedding", rotary},
                                   {"rotary_position_embedding_backward", rotary_backward},
                                   {"embedding", gather},
                                   {"embedding_backward", scatter_add},
                                   {"norm_of_12288_tensors", norm_of_many}};

}  // namespace
}  // namespace ms::ops

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ms::core::flush_denormals_in_this_thread();
  ms::ops::register_in_context("rows", ms::ops::kBenches);
  benchmark::RunSpecifiedBenchmarks();
}
