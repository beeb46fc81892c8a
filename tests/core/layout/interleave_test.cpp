// The order in which two micro-batches take turns, and the check in front of it.
#include "core/layout/interleave.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

using Steps = std::vector<ChunkStep>;

constexpr int kExpertRanks = 2;

std::string listed(const std::vector<PairStep>& order) {
  std::string text;
  for (const PairStep& step : order) {
    text += step.is_forward ? "F." : "B.";
    text += sub_step_name(step.of_chunk.step);
    text += ' ';
  }
  return text;
}

core::TransformerConfig model_with_experts() {
  core::TransformerConfig model = test::small_model(17);
  model.num_experts = 4;
  model.moe_layer_freq = "1";
  return model;
}

// Each sum is under way while the other micro-batch computes; only the last one has nobody to hide it.
TEST(Interleave, SumsOfTensorParallelismLieBesideTheOthersComputing) {
  const core::TransformerConfig model = test::small_model(17);
  const auto order = interleave(chunk_steps(model, {0, 1}, 2), backward_chunk_steps(model, {1, 1}, 2));
  EXPECT_EQ(listed(order),
            "B.mlp B.mlp_reduce F.attention F.attention_reduce B.attention B.attention_reduce F.mlp F.mlp_reduce "
            "B.result F.result ");
}

// megatron/core/models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run: combine_bwd beside
// attention_fwd, dispatch_fwd beside mlp_bwd, dispatch_bwd beside mlp_fwd, combine_fwd beside attention_bwd.
TEST(Interleave, LayersWithExpertsTakeTurnsAsInMegatron) {
  const core::TransformerConfig model = model_with_experts();
  const auto order =
      interleave(chunk_steps(model, {0, 1}, 1, kExpertRanks), backward_chunk_steps(model, {1, 1}, 1, kExpertRanks));
  EXPECT_EQ(listed(order),
            "B.combine F.attention F.dispatch B.experts B.dispatch F.experts F.combine B.attention B.result F.result ");
}

TEST(Interleave, WhatTheOtherHasNotRunsAlone) {
  const core::TransformerConfig model = test::small_model(17);
  const Steps none = chunk_steps(model, {0, 0}, 2), one = backward_chunk_steps(model, {0, 1}, 2);
  EXPECT_EQ(listed(interleave(none, one)), "B.mlp B.mlp_reduce F.result B.attention B.attention_reduce B.result ");
  EXPECT_EQ(check_interleaved(none, one, interleave(none, one)), "");
}

struct Chunks {
  core::TransformerConfig model;
  int tp;
  int64_t forward, backward;  // layers
};

std::vector<Chunks> all_chunks() {
  std::vector<Chunks> chunks;
  for (const core::TransformerConfig& model : {test::small_model(17), model_with_experts()}) {
    for (const int tp : {1, 2}) {
      for (int64_t forward = 0; forward <= 2; ++forward) {
        for (int64_t backward = 0; backward <= 2; ++backward) chunks.push_back({model, tp, forward, backward});
      }
    }
  }
  return chunks;
}

TEST(Interleave, IsLegalForAllChunks) {
  for (const Chunks& of : all_chunks()) {
    const Steps forward = chunk_steps(of.model, {0, of.forward}, of.tp, kExpertRanks);
    const Steps backward = backward_chunk_steps(of.model, {0, of.backward}, of.tp, kExpertRanks);
    const auto order = interleave(forward, backward);
    EXPECT_EQ(check_interleaved(forward, backward, order), "") << listed(order);
  }
}

// By the definition: every sub-step of each once and in order, and between a communication and the next sub-step of its
// micro-batch a computation of the other, unless the other has none at hand: it is done, or waits itself.
bool is_legal(const Steps& forward, const Steps& backward, const std::vector<PairStep>& order) {
  Steps of[2];
  for (const PairStep& step : order) of[step.is_forward ? 1 : 0].push_back(step.of_chunk);
  if (of[1] != forward || of[0] != backward) return false;
  const auto hidden = [&](size_t from, size_t to) {  // whether the other computes in between
    return std::any_of(
        order.begin() + static_cast<ptrdiff_t>(from), order.begin() + static_cast<ptrdiff_t>(to),
        [&](const PairStep& s) { return s.is_forward != order[from].is_forward && !communicates(s.of_chunk.step); });
  };
  for (size_t i = 0; i < order.size(); ++i) {
    size_t own = i, other = i;  // the last sub-steps before this one
    while (own-- > 0 && order[own].is_forward != order[i].is_forward) {
    }
    while (other-- > 0 && order[other].is_forward == order[i].is_forward) {
    }
    if (own == SIZE_MAX || !communicates(order[own].of_chunk.step) || hidden(own, i)) continue;
    const auto next = std::find_if(order.begin() + static_cast<ptrdiff_t>(i), order.end(),
                                   [&](const PairStep& s) { return s.is_forward != order[i].is_forward; });
    const bool other_waits = other != SIZE_MAX && communicates(order[other].of_chunk.step) && !hidden(other, i);
    if (next != order.end() && !communicates(next->of_chunk.step) && !other_waits) return false;
  }
  return true;
}

TEST(CheckInterleaved, AgreesWithTheDefinitionOnRandomMutations) {
  std::mt19937 random(20261126);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::vector<Chunks> chunks = all_chunks();
  int legal = 0;
  constexpr int kMutations = 3000;
  for (int i = 0; i < kMutations; ++i) {
    const Chunks& of = chunks[below(chunks.size())];
    const Steps forward = chunk_steps(of.model, {0, of.forward}, of.tp, kExpertRanks);
    const Steps backward = backward_chunk_steps(of.model, {0, of.backward}, of.tp, kExpertRanks);
    auto order = interleave(forward, backward);
    const size_t at = below(order.size());
    switch (below(5)) {
      case 0:
      case 1:
      case 2:  // neighbours change places
        if (at + 1 < order.size()) std::swap(order[at], order[at + 1]);
        break;
      case 3:
        order.erase(order.begin() + static_cast<ptrdiff_t>(at));
        break;
      default:
        order.insert(order.begin() + static_cast<ptrdiff_t>(below(order.size())), order[at]);
        break;
    }
    const bool is = is_legal(forward, backward, order);
    const std::string fault = check_interleaved(forward, backward, order);
    ASSERT_EQ(fault.empty(), is) << fault << '\n' << listed(order);
    legal += is ? 1 : 0;
  }
  EXPECT_GT(legal, kMutations / 20);
  EXPECT_LT(legal, kMutations * 3 / 4);
}

TEST(CheckInterleaved, NamesTheFault) {
  const core::TransformerConfig model = test::small_model(17);
  const Steps forward = chunk_steps(model, {0, 1}, 2), backward = backward_chunk_steps(model, {1, 1}, 2);
  const auto fault_after = [&](const auto& change) {
    std::vector<PairStep> order = interleave(forward, backward);
    change(order);
    return check_interleaved(forward, backward, order);
  };
  EXPECT_EQ(fault_after([](auto& order) { order.pop_back(); }), "forward, layer 1, result is missing");
  EXPECT_EQ(fault_after([](auto& order) { order.push_back(order.back()); }),
            "sub-step 10: forward, layer 1, result comes after the last one");
  EXPECT_EQ(fault_after([](auto& order) { std::swap(order[0], order[1]); }),
            "sub-step 0: backward, layer 0, mlp_reduce instead of layer 0, mlp");
  EXPECT_EQ(fault_after([](auto& order) { std::rotate(order.begin() + 2, order.begin() + 4, order.begin() + 5); }),
            "sub-step 2: backward, layer 0, attention waits for communication while the other micro-batch could "
            "compute");
}

}  // namespace
}  // namespace ms::layout
