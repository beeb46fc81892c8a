// --moe-adaptive-recompute-activation: blocks of experts with an uneven load are computed again, on all ranks alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "tests/support/random_values.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/model/moe_layer.h"

namespace ms::train {
namespace {

constexpr int kLayers = 16;  // calls of one layer, whose activations are all kept
constexpr int64_t kSeq = 32;

struct Layout {
  int tp, dp, ep;
  const char* dispatcher;
};

TrainerConfig config_of(const std::filesystem::path& folder, const Layout& layout) {
  TrainerConfig config = test::tiny_config(folder, {layout.tp, 1, layout.dp, false, layout.tp > 1});
  config.training.seq_length = config.model.max_position_embeddings = kSeq;
  config.model.num_experts = 4;
  config.model.moe_router_topk = 1;
  config.model.moe_router_pre_softmax = true;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_shared_expert_intermediate_size = 8;
  config.parallel.expert_model_parallel_size = layout.ep;
  config.parallel.expert_tensor_parallel_size = 1;
  config.parallel.moe_token_dispatcher_type = layout.dispatcher;
  config.parallel.shared_memory = false;
  return config;
}

struct Seen {
  std::vector<float> gradients;  // of rank 0
  int64_t peak = 0;              // of activations, of the rank that has most
  int dropped = 0;               // of all ranks: blocks of which nothing is kept
};

// hot: every token prefers expert 0.
Seen run(TrainerConfig config, int ranks, bool hot) {
  config.training.fix_router = !hot;
  Seen seen;
  std::mutex mutex;
  test::run_thread_ranks(ranks, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    rank.parameters->initialize(5, [](const Parameter&, const core::TensorView&) {});
    Parameter& router = rank.parameters->at("decoder.layers.1.mlp.router.weight");
    const int64_t hidden = rank.config.model.hidden_size;
    for (int64_t i = 0; i < hidden; ++i) router.weight.data<float>()[i] = hot ? 1 : 0;
    MoeLayer layer(*rank.state, *rank.parameters, 1);
    const std::vector<int64_t> samples = {0};
    const SequenceContext sequence{.samples = samples};
    core::Tensor x(rank.arena, core::DType::kFp32, {kSeq / rank.config.parallel.tensor_model_parallel_size, 1, hidden},
                   core::MemoryTag::kTmp);
    std::ranges::transform(test::RandomValues(3).make<float>(x.size(), 0.5F), x.data<float>(),
                           [](float value) { return 1 + value; });
    std::vector<FeedForwardActivations> saved(kLayers);
    rank.parameters->zero_grads();
    rank.arena.reset_peaks();
    int dropped = 0;
    for (FeedForwardActivations& one : saved) {
      layer.forward(x, one, {}, &x.view(), sequence);
      dropped += one.moe.logits.defined() || one.moe.permuted.defined() || one.normed.defined() ? 0 : 1;
    }
    for (FeedForwardActivations& one : saved) {
      core::Tensor dy(rank.arena, core::DType::kFp32, x.shape(), core::MemoryTag::kTmp);
      std::ranges::copy(test::RandomValues(4).make<float>(x.size(), 1), dy.data<float>());
      WeightGradients weights;
      layer.backward(dy, x, one, dy, sequence, weights);
    }
    const std::lock_guard lock(mutex);
    seen.dropped += dropped;
    seen.peak = std::max(seen.peak, rank.arena.peak_bytes(core::MemoryTag::kAct));
    if (endpoint.rank() != 0) return;
    for (const Parameter& parameter : rank.parameters->all()) {
      const auto values = parameter.main_grad.elements<float>();
      seen.gradients.insert(seen.gradients.end(), values.begin(), values.end());
    }
  });
  return seen;
}

TEST(AdaptiveRecompute, DropsUnevenBlocksOnAllRanksAlike) {
  const test::TemporaryFolder folder;
  for (const Layout& layout : {Layout{1, 2, 2, "alltoall"}, Layout{1, 2, 2, "allgather"}, Layout{2, 1, 1, "alltoall"},
                               Layout{2, 2, 2, "alltoall"}, Layout{1, 1, 1, "alltoall"}}) {
    const int ranks = layout.tp * layout.dp;
    SCOPED_TRACE(core::cat("TP ", layout.tp, ", EP ", layout.ep, ", ", layout.dispatcher));
    TrainerConfig config = config_of(folder.path(), layout);
    const Seen plain = run(config, ranks, true);
    config.training.moe_adaptive_recompute_activation = true;
    const Seen adaptive = run(config, ranks, true), even = run(config, ranks, false);
    EXPECT_EQ(plain.dropped, 0);
    EXPECT_EQ(adaptive.dropped, ranks * kLayers);
    EXPECT_EQ(even.dropped, 0);
    EXPECT_EQ(adaptive.gradients, plain.gradients) << "no bit changes";
    EXPECT_LE(static_cast<double>(adaptive.peak), 1.1 * static_cast<double>(even.peak));
    EXPECT_LT(adaptive.peak, plain.peak);
    config.training.moe_adaptive_recompute_activation_scale = 4;  // one of 4 experts has at most 4 times its share
    EXPECT_EQ(run(config, ranks, true).dropped, 0);
  }
}

// Of ranks that share sequences, pairs exchange tokens.
TrainerConfig config_of_pairs(const std::filesystem::path& folder, const test::TinyLayout& layout) {
  TrainerConfig config = test::tiny_config(folder, layout);
  config.training.seq_length = config.model.max_position_embeddings = 24;
  config.training.train_iters = 6;
  config.model.vocab_size = 257;
  config.model.init_method_std = 0.1;
  config.model.num_experts = 4;
  config.model.moe_router_topk = 2;
  config.parallel.expert_model_parallel_size = 2;
  config.training.moe_adaptive_recompute_activation_scale = 1.3;
  return config;
}

// A capacity is one of all tokens of a micro-batch, whose choices a block gathers again when it runs again. One pair
// may find its load uneven where the other does not.
TEST(AdaptiveRecompute, OfACapacityIsDecidedByAllThatShareSequences) {
  const auto weights = [](bool adapts) {
    const test::TemporaryFolder folder;
    TrainerConfig config = config_of_pairs(folder.path(), {.cp = 4});
    config.training.moe_expert_capacity_factor = 1.5;
    config.training.moe_adaptive_recompute_activation = adapts;
    return test::outcome_of(config, 4, folder / "save").weights;
  };
  EXPECT_EQ(weights(true), weights(false));
}

// Ranks 2 and 3 exchange tokens, and are of two triples that share sequences, which could decide differently.
TEST(AdaptiveRecompute, RefusesExchangesThatCrossThoseOfACapacity) {
  const test::TemporaryFolder folder;
  TrainerConfig config = config_of_pairs(folder.path(), {.dp = 2, .cp = 3, .context = "p2p"});
  config.training.moe_adaptive_recompute_activation = true;
  TrainerConfig with_capacity = config;
  with_capacity.training.moe_expert_capacity_factor = 1;
  EXPECT_NO_THROW(config.resolve_and_validate(6));
  EXPECT_THROW(with_capacity.resolve_and_validate(6), core::Error);
}

}  // namespace
}  // namespace ms::train
