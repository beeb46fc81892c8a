// Recomputation saves activation memory and changes no bit.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "core/layout/slot_policy.h"
#include "tests/support/tiny_run.h"
#include "train/memory/activations.h"

namespace ms {
namespace {

train::RunSummary run(const std::string& method, int64_t layers, const test::TinyLayout& layout) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.train_iters = 5;
  config.training.micro_batch_size = 2;
  if (!method.empty()) {
    config.training.recompute_granularity = "full";
    config.training.recompute_method = method;
    config.training.recompute_num_layers = layers;
  }
  return test::run_on_threads(config, layout.ranks());
}

int64_t peak_activations(const train::RunSummary& summary) {
  return summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kAct)];
}

TEST(Recompute, ChangesNoBitAndUsesLessMemory) {
  for (const test::TinyLayout& layout : {test::TinyLayout{}, test::TinyLayout{2, 1, 1, false, true}}) {
    const auto plain = run("", 0, layout);
    int64_t previous = peak_activations(plain);
    for (const auto& [method, layers] : {std::pair{"block", 2}, std::pair{"uniform", 1}}) {
      const auto recomputed = run(method, layers, layout);
      for (size_t i = 0; i < plain.steps.size(); ++i) {
        EXPECT_EQ(recomputed.steps[i].loss, plain.steps[i].loss) << method << " step " << i + 1;
        EXPECT_EQ(recomputed.steps[i].grad_norm, plain.steps[i].grad_norm) << method << " step " << i + 1;
      }
      EXPECT_LT(peak_activations(recomputed), previous) << method;
      EXPECT_GT(recomputed.steps.back().tflops_per_rank, 0);
      previous = peak_activations(recomputed);
    }
  }
}

TEST(Recompute, OfANumberOfLayersOfEachStageChangesNoBit) {
  const auto run_with = [](std::vector<int64_t> list, int64_t type) {
    test::TemporaryFolder folder;
    train::TrainerConfig config = test::tiny_config(folder.path(), {1, 2, 1});
    config.training.train_iters = 5;
    config.training.recompute_module_list = std::move(list);
    config.training.recompute_type = type;
    return test::run_all_on_threads(config, 2);
  };
  const auto plain = run_with({}, 2);
  for (const int64_t type : {2, 0}) {
    for (const std::vector<int64_t>& list : {std::vector<int64_t>{2, 0}, std::vector<int64_t>{0, 1}}) {
      const auto recomputed = run_with(list, type);
      for (size_t i = 0; i < plain[0].steps.size(); ++i) {
        EXPECT_EQ(recomputed[0].steps[i].loss, plain[0].steps[i].loss) << "step " << i + 1;
        EXPECT_EQ(recomputed[0].steps[i].grad_norm, plain[0].steps[i].grad_norm) << "step " << i + 1;
      }
      for (const size_t stage : {0u, 1u}) {
        if (list[stage] > 0) {
          EXPECT_LT(peak_activations(recomputed[stage]), peak_activations(plain[stage])) << "stage " << stage;
        } else {
          EXPECT_EQ(peak_activations(recomputed[stage]), peak_activations(plain[stage])) << "stage " << stage;
        }
      }
    }
  }
}

// FLOPs of a step's products, including recomputed ones.
double flops(const train::RunSummary& summary) {
  return summary.steps.back().hardware_tflops_per_rank * summary.steps.back().seconds * 1e12;
}

TEST(Recompute, SkipsTheProductOfTheUnusedOutput) {
  constexpr double kFc2 = 2.0 * (4 * 16) * 32 * 64;  // linear_fc2 of one layer, in a step of 4 x 16 tokens
  const double none = flops(run("", 0, {})), block = flops(run("block", 2, {}));
  const double each = flops(run("uniform", 1, {})), pairs = flops(run("uniform", 2, {}));
  EXPECT_NEAR(each - none, 2 * (block - none), 1);
  EXPECT_NEAR(pairs - each, 2 * kFc2, 1);  // two pairs; in each the second layer reads the output of the first
}

// Latent attention: queries, keys and values of one micro-batch are gone, up to those of a layer at a time; what they
// come from stays.
TEST(Recompute, OfLatentAttentionsUpProjectionsChangesNoBit) {
  const auto run_with = [](bool recompute, bool as_module, const test::TinyLayout& layout) {
    test::TemporaryFolder folder;
    train::TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.training.train_iters = 5;
    config.model.multi_latent_attention = config.model.qk_layernorm = true;
    config.model.q_lora_rank = 12;
    config.model.kv_lora_rank = 10;
    config.model.qk_head_dim = 12;
    config.model.qk_pos_emb_head_dim = 4;
    config.model.v_head_dim = 12;
    config.training.recompute_mla_up_proj = recompute && !as_module;
    if (recompute && as_module) {
      config.training.recompute_granularity = "selective";
      config.training.recompute_modules = {"mla_up_proj"};
    }
    return test::run_on_threads(config, layout.ranks());
  };
  const test::TinyLayout layouts[] = {{},
                                      {2, 1, 1, false, true},
                                      {.cp = 2, .context = "p2p"},
                                      {.tp = 2, .sp = true, .cp = 4, .context = "p2p"},
                                      {.cp = 4, .context = "p2p w2"},
                                      {.cp = 4, .context = "a2a"},
                                      {.cp = 4, .context = "a2a+p2p"},
                                      {.cp = 4, .context = "a2a,p2p,a2a+p2p"},
                                      {.cp = 2, .context = "all_gather"},
                                      {.cp = 4, .context = "adaptive"},
                                      {.cp = 4, .context = "hybrid_adaptive"}};
  for (const test::TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    const auto plain = run_with(false, false, layout);
    for (const bool as_module : {false, true}) {
      const auto recomputed = run_with(true, as_module, layout);
      for (size_t i = 0; i < plain.steps.size(); ++i) {
        EXPECT_EQ(recomputed.steps[i].loss, plain.steps[i].loss) << "step " << i + 1;
        EXPECT_EQ(recomputed.steps[i].grad_norm, plain.steps[i].grad_norm) << "step " << i + 1;
      }
      if (layout.cp > 1) {
        EXPECT_LT(peak_activations(recomputed), peak_activations(plain));
        continue;
      }
      const int64_t of_layer = 16 * 8 / layout.tp * (16 + 16 + 12) * 4;  // tokens, heads of this rank, q, k and v
      const int64_t less = peak_activations(plain) - peak_activations(recomputed);
      EXPECT_GE(2 * less, 5 * of_layer);
      EXPECT_LE(less, 4 * of_layer) << "of four layers";
    }
  }
}

using Drops = std::function<void(train::TrainingConfig&)>;

// Runs the tiny model in fp32 with 4 layers and the recomputation flags that `drop` sets.
train::RunSummary run_dropping(const Drops& drop, const test::TinyLayout& layout, bool gpt) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.train_iters = 5;
  config.training.micro_batch_size = 2;
  drop(config.training);
  if (gpt) {
    config.model.swiglu = false;
    config.model.normalization = "LayerNorm";
    config.model.add_bias_linear = true;
  }
  return test::run_on_threads(config, layout.ranks());
}

TEST(RecomputedParts, ChangeNoBitAndSaveMemoryByTheFormula) {
  constexpr int64_t kTokens = 2 * 16, kHidden = 32, kFfn = 64, kLayers = 4, kBytes = 4;
  for (const test::TinyLayout& layout : {test::TinyLayout{}, test::TinyLayout{2, 1, 1, false, true}}) {
    for (const bool gpt : {false, true}) {
      const auto plain = run_dropping([](auto&) {}, layout, gpt);
      const auto expect_same = [&](const Drops& drop, int64_t saved_bytes) {
        const auto recomputed = run_dropping(drop, layout, gpt);
        for (size_t i = 0; i < plain.steps.size(); ++i) {
          EXPECT_EQ(recomputed.steps[i].loss, plain.steps[i].loss) << layout.name() << " step " << i + 1;
          EXPECT_EQ(recomputed.steps[i].grad_norm, plain.steps[i].grad_norm) << layout.name() << " step " << i + 1;
        }
        EXPECT_NEAR(static_cast<double>(peak_activations(plain) - peak_activations(recomputed)),
                    static_cast<double>(saved_bytes), 0.05 * static_cast<double>(saved_bytes))
            << layout.name();
      };
      const int64_t norms =
          2 * kBytes * kTokens * kHidden / layout.tp;  // of one layer; divided by sequence parallelism
      const Drops norm = [](auto& t) { t.recompute_norm = true; };
      const Drops activation = [](auto& t) { t.recompute_activation_function = true; };
      const auto modules = [](std::vector<std::string> names) -> Drops {
        return [names](auto& t) {
          t.recompute_granularity = "selective";
          t.recompute_modules = names;
        };
      };
      expect_same(norm, kLayers * norms);
      expect_same([](auto& t) { t.recompute_norm = true, t.recompute_norm_num_layers = 3; }, 3 * norms);
      const int64_t product = kBytes * kTokens * kFfn / layout.tp;
      expect_same(activation, kLayers * product);
      expect_same([](auto& t) { t.recompute_activation_function = t.recompute_norm = true; },
                  kLayers * (product + norms));
      const int64_t fc1 = gpt ? product : 2 * product;
      expect_same(modules({"mlp"}), kLayers * (norms / 2 + fc1 + product));
      expect_same(modules({"core_attn", "layernorm", "mlp"}), kLayers * (norms + fc1 + product));
    }
  }
}

TEST(RecomputedParts, LayersCountAfterThoseRecomputedWhole) {
  const Drops drop = [](train::TrainingConfig& training) {
    training.recompute_granularity = "full";
    training.recompute_method = "block";
    training.recompute_num_layers = 2;
    training.recompute_norm = training.recompute_activation_function = true;
    training.recompute_norm_num_layers = 1;
  };
  train::TrainerConfig whole;
  drop(whole.training);
  const layout::SlotTable slots(whole.recompute_plan(), {}, 5, {});
  for (int64_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(slots[layer].runs_again(), layer < 2) << layer;
    EXPECT_EQ(slots[layer].module_drops(layout::SavedSlot::kInputNorm), layer == 2) << layer;
    EXPECT_EQ(slots[layer].module_drops(layout::SavedSlot::kProduct), layer >= 2) << layer;
  }
  const auto plain = run("block", 2, {});
  const auto both = run_dropping(drop, {}, /*gpt=*/false);
  EXPECT_EQ(both.steps.back().grad_norm, plain.steps.back().grad_norm);
  EXPECT_LT(peak_activations(both), peak_activations(plain));
}

// In one run, layers of one chunk are kept whole, but for their norms, for some micro-batches, swapped for others, and
// dropped for the rest.
TEST(Recompute, MicrobatchesOfOneRunHaveSlotsOfTheirOwn) {
  const test::TinyLayout layout{1, 2, 1, false, false, 2};
  const test::TemporaryFolder folder;
  const auto config_of = [&](bool drops, bool swaps) {
    train::TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.model.num_layers = 8;
    config.training.train_iters = 3;
    config.training.global_batch_size = 8;
    config.training.recompute_in_bubble = config.training.recompute_norm = drops;
    config.training.swap_attention = swaps;
    config.training.swap_min_tensor_kib = swaps ? 0 : train::SwapAttentionConfig().swap_min_tensor_kib;
    if (swaps) config.training.swap_dir = folder.path().string();
    return config;
  };
  train::TrainerConfig resolved = config_of(true, true);
  resolved.model.vocab_size = 257;
  resolved.resolve_and_validate(layout.ranks());
  const layout::SlotPolicy policy(resolved.training_step(layout.ranks()), /*stage=*/0);
  std::set<layout::SlotDecision> of_queries;
  for (const auto& [table, microbatches] : policy.shares(/*chunk=*/0))
    of_queries.insert(table[1][layout::SavedSlot::kQ]);
  EXPECT_EQ(of_queries, (std::set{layout::SlotDecision::kRecompute, layout::SlotDecision::kSwap}));

  const auto plain = test::run_all_on_threads(config_of(false, false), layout.ranks());
  for (const bool swaps : {false, true}) {
    const auto mixed = test::run_all_on_threads(config_of(true, swaps), layout.ranks());
    for (size_t rank = 0; rank < plain.size(); ++rank) {
      for (size_t i = 0; i < plain[rank].steps.size(); ++i) {
        EXPECT_EQ(mixed[rank].steps[i].loss, plain[rank].steps[i].loss) << "rank " << rank << ", step " << i + 1;
        EXPECT_EQ(mixed[rank].steps[i].grad_norm, plain[rank].steps[i].grad_norm)
            << "rank " << rank << ", step " << i + 1;
      }
      EXPECT_LT(peak_activations(mixed[rank]), peak_activations(plain[rank])) << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace ms
