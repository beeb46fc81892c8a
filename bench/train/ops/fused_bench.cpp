// Fused operators: fused/<operator>/threads:<n>, in real time, in turns with the operators they replace.
//
// `of parts` is the median of the parts' time divided by theirs. The parts are: add and norm; the products of the
// packed documents as one causal sequence; gradients without the bias's; fp32 experts for those of 8 and 4 bits; the
// operators of an MLP. Ring attention's update takes turns with copies: %copy.
#include <cmath>
#include <cstring>

#include "bench/train/ops/in_context.h"
#include "bench/train/ops/random_tensor.h"
#include "core/tensor.h"
#include "tests/support/random_values.h"
#include "train/ops/activation.h"
#include "train/ops/dropout_add_norm.h"
#include "train/ops/elementwise.h"
#include "train/ops/ffn.h"
#include "train/ops/fusion_attention.h"
#include "train/ops/grouped_matmul.h"
#include "train/ops/quantized_matmul.h"
#include "train/ops/ring_attention.h"

namespace ms::ops {
namespace {

core::Tensor random_bytes(core::Arena& arena, core::Dims shape) {
  core::Tensor x(arena, core::DType::kInt8, std::move(shape), core::MemoryTag::kTmp);
  const auto values = test::RandomValues().integers(1 << 16, -128, 127);
  for (int64_t i = 0; i < x.size(); ++i)
    x.bytes()[i] = static_cast<std::byte>(values[static_cast<size_t>(i % (1 << 16))]);
  return x;
}

// Add and RMSNorm of 16384 rows of a model's width, 50 MB each.
void add_norm(benchmark::State& state, Context& context) {
  const auto x = random_tensor(context.arena, {16384, 1, 768}), residual = random_tensor(context.arena, x.shape());
  const auto gamma = random_tensor(context.arena, {768});
  const core::TensorView past = residual;
  const DropoutAddNormInputs inputs{x, gamma, &past};
  DropoutAddNormParams params;
  params.kind = NormKind::kRmsNorm;
  const auto parts = [&] {
    const auto z = add(context, x, residual);
    core::Tensor rstd;
    return rms_norm(context, z, gamma, params.norm, &rstd);
  };
  if (std::memcmp(dropout_add_norm(context, inputs, params).y.bytes(), parts().bytes(), 4096) != 0) {
    return state.SkipWithError("wrong result");
  }
  state.counters["of parts"] = bench::in_turns(
      state, [&] { dropout_add_norm(context, inputs, params); }, [&] { parts(); });
}

// Same with dropout between: a copy that is dropped in place, then added and normed.
void dropout_norm(benchmark::State& state, Context& context) {
  const auto x = random_tensor(context.arena, {16384, 1, 768}), residual = random_tensor(context.arena, x.shape());
  const auto gamma = random_tensor(context.arena, {768}), copy = random_tensor(context.arena, x.shape());
  const core::TensorView past = residual;
  const DropoutAddNormInputs inputs{x, gamma, &past};
  const std::vector<int64_t> samples = {0};
  DropoutAddNormParams params;
  params.kind = NormKind::kRmsNorm, params.dropout = {0.1F, 7}, params.samples = samples;
  const auto parts = [&] {
    cast_into(context, x, copy);
    dropout_inplace(context, copy, params.dropout, 0, samples);
    const auto z = add(context, copy, residual);
    core::Tensor rstd;
    return rms_norm(context, z, gamma, params.norm, &rstd);
  };
  const auto whole = dropout_add_norm(context, inputs, params).y, other = parts();
  for (int64_t i = 0; i < 4096; ++i) {
    if (!(std::abs(whole.data<float>()[i] - other.data<float>()[i]) < 1e-5)) {
      return state.SkipWithError("wrong result");
    }
  }
  state.counters["of parts"] = bench::in_turns(
      state, [&] { dropout_add_norm(context, inputs, params); }, [&] { parts(); });
}

// 8 documents of 512 positions, and one causal sequence of all of them: tiles between documents are not visited.
void packed_documents(benchmark::State& state, Context& context) {
  const auto q = random_tensor(context.arena, {4096, 4, 64});
  FusionAttentionParams packed, whole;
  const std::vector<int64_t> ends = {512, 1024, 1536, 2048, 2560, 3072, 3584, 4096}, end = {4096};
  for (FusionAttentionParams* params : {&packed, &whole}) {
    params->head_num = 4, params->layout = AttentionLayout::kTnd, params->sparse_mode = SparseMode::kLeftUpCausal;
    params->scale = 0.125;
  }
  packed.actual_seq_qlen = packed.actual_seq_kvlen = ends;
  whole.actual_seq_qlen = whole.actual_seq_kvlen = end;
  const auto first = fusion_attention(context, q, q, q, packed), other = fusion_attention(context, q, q, q, whole);
  if (std::memcmp(first.out.bytes(), other.out.bytes(), 512 * 4 * 64 * 4) != 0)
    return state.SkipWithError("wrong result");
  const int64_t before = context.flops;
  fusion_attention(context, q, q, q, packed);
  const auto flops = static_cast<double>(context.flops - before);
  state.counters["of parts"] = bench::in_turns(
      state, [&] { fusion_attention(context, q, q, q, packed); }, [&] { fusion_attention(context, q, q, q, whole); });
  bench::report_flops(state, flops, context.pool.num_threads());
}

void ring_update(benchmark::State& state, Context& context) {
  const auto a = random_tensor(context.arena, {16384, 12, 64}), b = random_tensor(context.arena, a.shape());
  const auto max = random_tensor(context.arena, {16384, 12}), sum = random_tensor(context.arena, {16384, 12});
  for (float& value : sum.elements<float>()) value = 1.5F + 0.5F * value;
  const PartialAttention one{a, max, sum}, two{b, max, sum};
  const std::vector<int64_t> ends = {16384};
  const auto update = [&] { return ring_attention_update(context, one, two, AttentionLayout::kTnd, ends); };
  if (!(std::abs(update().out.data<float>()[7] - 0.5F * (a.data<float>()[7] + b.data<float>()[7])) < 1e-6)) {
    return state.SkipWithError("wrong result");
  }
  const core::Tensor target = random_tensor(context.arena, a.shape());
  const double ratio = bench::in_turns(
      state, [&] { update(); }, [&] { cast_into(context, a, target); });
  state.counters["%copy"] = 100 * ratio * 3 / 2;  // two reads and a write against one of each
}

void int8_experts(benchmark::State& state, Context& context) {
  const int64_t groups = 8, rows = 128, in = 768, out = 2048;
  const auto x = random_tensor(context.arena, {groups * rows, in}),
             weight = random_tensor(context.arena, {groups, in, out});
  const auto x8 = random_bytes(context.arena, x.shape()), weight8 = random_bytes(context.arena, weight.shape());
  const auto scale = random_tensor(context.arena, {groups, out});
  const auto ends = group_ends(std::vector<int64_t>(static_cast<size_t>(groups), rows));
  QuantGmmParams params;
  params.output_dtype = core::DType::kFp32;
  int64_t want = 0;
  for (int64_t p = 0; p < in; ++p) {
    want += static_cast<int8_t>(x8.bytes()[p]) * static_cast<int8_t>(weight8.bytes()[p * out]);
  }
  const float seen = quant_gmm(context, x8, weight8, scale, ends, params).data<float>()[0];
  if (seen != static_cast<float>(want) * scale.data<float>()[0]) return state.SkipWithError("wrong result");
  state.counters["of parts"] = bench::in_turns(
      state, [&] { quant_gmm(context, x8, weight8, scale, ends, params); },
      [&] { grouped_matmul(context, x, weight, ends, GroupedWeight::kInOut); });
  bench::report_flops(state, 2.0 * static_cast<double>(groups * rows * in * out), context.pool.num_threads());
}

// Weights of 8 and 4 bits compared with fp32 ones: less is read; after conversion to real numbers the work is the same.
void integer_weights(benchmark::State& state, Context& context, core::DType dtype) {
  const int64_t groups = 8, rows = 128, in = 768, out = 2048;
  const auto x = random_tensor(context.arena, {groups * rows, in}),
             weight = random_tensor(context.arena, {groups, in, out});
  core::Tensor packed(context.arena, dtype, {groups, in, out / packed_weights(dtype)}, core::MemoryTag::kTmp);
  const auto bytes = random_bytes(context.arena, {packed.size_bytes()});
  std::memcpy(packed.bytes(), bytes.bytes(), static_cast<size_t>(packed.size_bytes()));
  const auto scale = random_tensor(context.arena, {groups, out});
  const auto ends = group_ends(std::vector<int64_t>(static_cast<size_t>(groups), rows));
  const auto ours = [&] { return weight_quant_gmm(context, x, packed, {scale}, ends); };
  double want = 0;  // of the first column, whose 4-bit number is the lower half of its byte
  for (int64_t p = 0; p < in; ++p) {
    const auto byte = static_cast<int8_t>(packed.bytes()[p * packed.size_bytes() / (groups * in)]);
    const int number = packed_weights(dtype) == 1 ? byte : ((byte & 15) ^ 8) - 8;
    want += static_cast<double>(x.data<float>()[p]) * number * scale.data<float>()[0];
  }
  if (!(std::abs(ours().data<float>()[0] - want) < 1e-5 * (1 + std::abs(want)) * 128)) {
    return state.SkipWithError("wrong result");
  }
  state.counters["of parts"] = bench::in_turns(
      state, [&] { ours(); }, [&] { grouped_matmul(context, x, weight, ends, GroupedWeight::kInOut); });
  bench::report_flops(state, 2.0 * static_cast<double>(groups * rows * in * out), context.pool.num_threads());
}
void int8_weights(benchmark::State& state, Context& context) { integer_weights(state, context, core::DType::kInt8); }
void int4_weights(benchmark::State& state, Context& context) { integer_weights(state, context, core::DType::kInt32); }

// An MLP of 8 experts, compared with its two products and the activation between them.
void experts_ffn(benchmark::State& state, Context& context) {
  const int64_t groups = 8, rows = 128, hidden = 768, wide = 2048;
  const auto x = random_tensor(context.arena, {groups * rows, hidden}),
             w1 = random_tensor(context.arena, {groups, hidden, wide}),
             w2 = random_tensor(context.arena, {groups, wide, hidden});
  const auto ends = group_ends(std::vector<int64_t>(static_cast<size_t>(groups), rows));
  const auto whole = [&] { return ffn(context, x, w1, w2, ends, {kernels::Activation::kGelu}); };
  const auto parts = [&] {
    const auto product = grouped_matmul(context, x, w1, ends, GroupedWeight::kInOut);
    return grouped_matmul(context, activation(context, Activation::kGelu, product), w2, ends, GroupedWeight::kInOut);
  };
  const float want = parts().data<float>()[7];
  if (!(std::abs(whole().data<float>()[7] - want) < 1e-3 * (1 + std::abs(want)))) {
    return state.SkipWithError("wrong result");
  }
  state.counters["of parts"] = bench::in_turns(
      state, [&] { whole(); }, [&] { parts(); });
  bench::report_flops(state, 4.0 * static_cast<double>(groups * rows * hidden * wide), context.pool.num_threads());
}

// Gradients of attention with a bias for every pair, compared with the same without the bias's own gradient.
void pse_gradient(benchmark::State& state, Context& context) {
  const auto q = random_tensor(context.arena, {2, 1024, 4, 64}), pse = random_tensor(context.arena, {1, 4, 1024, 1024});
  const core::TensorView view = pse;
  FusionAttentionParams params;
  params.head_num = 4, params.layout = AttentionLayout::kBsnd, params.scale = 0.125;
  params.pse = &view, params.pse_type = PositionBias::kAfterScale;
  const auto forward = fusion_attention(context, q, q, q, params);
  core::Tensor dpse;
  const auto with = [&] { return fusion_attention_backward(context, q, q, q, q, forward, params, &dpse); };
  with();
  double sum = 0;  // a query's scores change together, so softmax does not change
  for (int64_t j = 0; j < 1024; ++j) sum += dpse.data<float>()[j];
  if (!(std::abs(sum) < 1e-4)) return state.SkipWithError("wrong result");
  const int64_t before = context.flops;
  with();
  const auto flops = static_cast<double>(context.flops - before);
  state.counters["of parts"] = bench::in_turns(
      state, [&] { with(); }, [&] { fusion_attention_backward(context, q, q, q, q, forward, params); });
  bench::report_flops(state, flops, context.pool.num_threads());
}

constexpr NamedBench kBenches[] = {{"add_rms_norm", add_norm},
                                   {"dropout_add_rms_norm", dropout_norm},
                                   {"packed_documents", packed_documents},
                                   {"fusion_attention_dpse", pse_gradient},
                                   {"ring_attention_update", ring_update},
                                   {"quant_gmm", int8_experts},
                                   {"weight_quant_gmm/int8", int8_weights},
                                   {"weight_quant_gmm/int4", int4_weights},
                                   {"ffn", experts_ffn}};

}  // namespace
}  // namespace ms::ops

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ms::core::flush_denormals_in_this_thread();
  ms::ops::register_in_context("fused", ms::ops::kBenches);
  benchmark::RunSpecifiedBenchmarks();
}
