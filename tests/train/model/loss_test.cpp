#include "train/model/loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/reference/array.h"
#include "tests/support/random_values.h"
#include "tests/train/model/rank.h"

namespace ms::train {
namespace {

using reference::Array;

constexpr int64_t kSeq = 12, kBatch = 2;

Array array(const core::TensorView& x) {
  const auto elements = x.elements<float>();
  return {elements.begin(), elements.end()};
}

Microbatch microbatch() {
  Microbatch result;
  result.batch = kBatch;
  result.seq = kSeq;
  for (int64_t i = 0; i < kBatch * kSeq; ++i) {
    result.labels.push_back(static_cast<int32_t>(i * 37 % 257));
    result.loss_mask.push_back(i % 5 == 3 ? 0.0F : 1.0F);
  }
  return result;
}

struct Outcome {
  LossValue loss, evaluated;
  Array normed, weight, weight_grad, dx;
  int64_t peak_act_bytes = 0;
};

// Runs the loss head of the tiny model on one rank, or on `tp` ranks (returning rank 0's slice).
Outcome run(int64_t chunk, double softcap, int tp = 1) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), {tp, 1, 1, false, tp > 1});
  config.model.output_logit_softcapping = softcap;
  config.training.loss_chunk_size = chunk;
  Outcome outcome;
  test::run_thread_ranks(tp, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    rank.parameters->zero_grads();
    Parameter& weight = rank.parameters->at("output_layer.weight");
    const int64_t hidden = rank.config.model.hidden_size, rows = weight.weight.dim(0);
    // TP determines which rows are padding and which rank has a row; the values of an id do not depend on it.
    for (int64_t row = 0; row < rows; ++row) {
      const auto values = test::RandomValues(static_cast<uint64_t>(rank.state->tp_rank() * rows + row)).make(hidden);
      std::copy(values.begin(), values.end(), weight.weight.data<float>() + row * hidden);
    }
    const core::TensorView gamma = rank.parameters->at("decoder.final_layernorm.weight").weight;
    const auto scales = test::RandomValues(7).make(hidden, 0.5F);
    for (int64_t i = 0; i < hidden; ++i) gamma.data<float>()[i] = 1 + scales[static_cast<size_t>(i)];
    LossHead head(*rank.state, *rank.parameters);
    const auto input = [&] {
      core::Tensor x(rank.arena, core::DType::kFp32, {kSeq / tp, kBatch, hidden}, core::MemoryTag::kTmp);
      const auto values = test::RandomValues(9).make(kSeq * kBatch * hidden, 2.0F);
      std::copy_n(values.begin() + rank.state->tp_rank() * x.size(), x.size(), x.data<float>());
      return x;
    };
    LossActivations saved;
    saved.input = input();
    const LossValue evaluated = head.forward(microbatch(), saved, std::nullopt);
    EXPECT_FALSE(saved.input.defined());
    saved.input = input();
    rank.arena.reset_peaks();
    const LossValue loss = head.forward(microbatch(), saved, 0.25);
    EXPECT_EQ(saved.logits.defined(), chunk == 0);
    // What the output layer read, which chunks have overwritten.
    Norm norm(*rank.state, *rank.parameters, "decoder.final_layernorm.weight", "decoder.final_layernorm.bias");
    ops::NormStatistics statistics;
    const Array normed = array(norm.forward(input(), statistics));
    WeightGradients at_once;
    const core::Tensor dx = head.backward(microbatch(), saved, at_once);
    if (endpoint.rank() > 0) return;
    outcome = {loss,
               evaluated,
               normed,
               array(weight.weight),
               array(weight.main_grad),
               array(dx),
               rank.arena.peak_bytes(core::MemoryTag::kAct)};
  });
  return outcome;
}

void expect_near(const Array& seen, const Array& want, double bound, const std::string& what) {
  ASSERT_EQ(seen.size(), want.size()) << what;
  for (size_t i = 0; i < seen.size(); ++i) ASSERT_NEAR(seen[i], want[i], bound) << what << " at " << i;
}

// The loss and the gradient of the output layer, computed in double from the output of the norm.
TEST(LossHead, AgreesWithTheDefinitionForAnyChunkSize) {
  const Microbatch batch = microbatch();
  for (const double softcap : {0.0, 3.0}) {
    for (const int64_t chunk : {0, 1, 5, 12, 100}) {
      const Outcome seen = run(chunk, softcap);
      const size_t hidden = seen.normed.size() / (kSeq * kBatch), vocab = 257;
      double loss = 0, tokens = 0;
      Array want(seen.weight.size());
      for (int64_t b = 0; b < kBatch; ++b) {
        for (int64_t s = 0; s < kSeq; ++s) {
          const auto at = static_cast<size_t>(s * kBatch + b);
          const double* x = seen.normed.data() + at * hidden;
          Array logit(vocab), slope(vocab, 1.0);
          double sum = 0;
          for (size_t v = 0; v < vocab; ++v) {
            for (size_t e = 0; e < hidden; ++e) logit[v] += x[e] * seen.weight[v * hidden + e];
            if (softcap > 0) {
              const double t = std::tanh(logit[v] / softcap);
              logit[v] = softcap * t;
              slope[v] = 1 - t * t;
            }
            sum += std::exp(logit[v]);
          }
          const auto label = static_cast<size_t>(batch.labels[at]);
          loss += batch.loss_mask[at] * (std::log(sum) - logit[label]);
          tokens += batch.loss_mask[at];
          for (size_t v = 0; v < vocab; ++v) {
            const double d = 0.25 * batch.loss_mask[at] * (std::exp(logit[v]) / sum - (v == label ? 1 : 0)) * slope[v];
            for (size_t e = 0; e < hidden; ++e) want[v * hidden + e] += d * x[e];
          }
        }
      }
      const std::string what = core::cat("softcap ", softcap, " chunk ", chunk);
      // A logit sums `hidden` products of at most 4 x 1; its error is that of its exponential. A gradient sums 24 rows
      // of at most 0.25 x 4 each.
      const double logit_error = static_cast<double>(hidden + 8) * 0x1p-24 * 4 * static_cast<double>(hidden);
      EXPECT_NEAR(seen.loss.sum, loss, 24 * 2 * logit_error) << what;
      EXPECT_EQ(seen.loss.tokens, tokens) << what;
      EXPECT_EQ(seen.evaluated.sum, seen.loss.sum) << what;
      // As a fp32 sum of 24 terms of at most 1: the worst case above is never met.
      expect_near(seen.weight_grad, want, 1e-5, what);
      EXPECT_GT(*std::max_element(want.begin(), want.end()), 0.1) << what << ": a smaller gradient says nothing";
    }
  }
}

TEST(LossHead, ChunksGiveTheUnchunkedGradient) {
  for (const int tp : {1, 2}) {
    for (const double softcap : {0.0, 3.0}) {
      const Outcome whole = run(0, softcap, tp), chunks = run(5, softcap, tp);
      const std::string what = core::cat("tp ", tp, " softcap ", softcap);
      EXPECT_NEAR(chunks.loss.sum, whole.loss.sum, 1e-6 * whole.loss.sum) << what;
      expect_near(chunks.dx, whole.dx, 1e-5, what + " dx");
      expect_near(chunks.weight_grad, whole.weight_grad, 1e-5, what + " weight");
    }
  }
}

// With chunks, only hidden states are kept.
TEST(LossHead, ChunksNeverStoreAllLogits) {
  const Outcome whole = run(0, 0), chunks = run(2, 0);
  const auto hidden = static_cast<int64_t>(chunks.dx.size()) / (kSeq * kBatch);
  const int64_t row = static_cast<int64_t>(chunks.weight.size()) / hidden * 4, dnormed = kSeq * kBatch * hidden * 4;
  EXPECT_GE(whole.peak_act_bytes, kSeq * kBatch * row);
  EXPECT_LE(chunks.peak_act_bytes, whole.peak_act_bytes - (kSeq - 2) * kBatch * row + dnormed);
}

}  // namespace
}  // namespace ms::train
