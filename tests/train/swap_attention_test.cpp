// Activations that leave memory for a file between forward and backward: no bit changes, two layers' worth stays.
#include <gtest/gtest.h>

#include <functional>

#include "core/layout/slot_policy.h"
#include "tests/support/open_files.h"
#include "tests/support/tiny_run.h"
#include "train/memory/activation_swap.h"

namespace ms {
namespace {

using Change = std::function<void(train::TrainerConfig&)>;

std::vector<train::RunSummary> run(const test::TinyLayout& layout, const Change& change) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.num_layers = 8;
  config.training.train_iters = 3;
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = 16;
  change(config);
  if (config.training.swap_attention || config.parallel.use_nanopipe_swap) {
    config.training.swap_dir = folder.path().string();
    config.training.swap_min_tensor_kib = 0;
  }
  return test::run_all_on_threads(config, layout.ranks());
}

void expect_equal(const std::vector<train::RunSummary>& seen, const std::vector<train::RunSummary>& expected) {
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    for (size_t i = 0; i < expected[rank].steps.size(); ++i) {
      EXPECT_EQ(seen[rank].steps[i].loss, expected[rank].steps[i].loss) << "rank " << rank << ", step " << i + 1;
      EXPECT_EQ(seen[rank].steps[i].grad_norm, expected[rank].steps[i].grad_norm)
          << "rank " << rank << ", step " << i + 1;
    }
  }
}

int64_t activations(const train::RunSummary& summary) {
  return summary.steps.back().peak_bytes[static_cast<size_t>(core::MemoryTag::kAct)];
}

const Change kAttention = [](auto& config) { config.training.swap_attention = true; };
const Change kAll = [](auto& config) {
  config.training.swap_attention = true;
  config.training.swap_modules = "input_norm,self_attention,post_attention_norm";
};

TEST(SwapAttention, ChangesNoBitOnAnyWayThroughThePipeline) {
  const test::TinyLayout layouts[] = {{},
                                      {2, 1, 1, false, true},
                                      {1, 2, 1},
                                      {1, 2, 1, false, false, 2},
                                      {2, 2, 1, false, true, 2},
                                      {1, 4, 1, false, false, 2},
                                      {1, 2, 2, true},
                                      {1, 2, 1, false, false, 1, "zb-h1"},
                                      {1, 4, 1, false, false, 1, "zb-v"},
                                      {1, 2, 1, false, false, 1, "dualpipev detached"},
                                      {2, 2, 1, false, true, 1, "dualpipev"},
                                      {1, 4, 1, false, false, 2, "nanopipe"}};
  for (const test::TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    const auto plain = run(layout, [](auto&) {});
    for (const Change& change : {kAttention, kAll}) {
      const auto swapped = run(layout, change);
      expect_equal(swapped, plain);
      for (size_t rank = 0; rank < plain.size(); ++rank) {
        const train::StepMetrics& step = swapped[rank].steps.back();
        ASSERT_TRUE(step.tier.has_value());
        EXPECT_GT(step.tier->written_bytes, 0);
        EXPECT_EQ(step.tier->written_bytes, step.tier->read_bytes);
        EXPECT_LT(activations(swapped[rank]), activations(plain[rank])) << "rank " << rank;
        EXPECT_FALSE(plain[rank].steps.back().tier.has_value());
      }
    }
  }
}

TEST(SwapAttention, ChangesNoBitWithOtherModelsAndRecomputation) {
  const std::pair<const char*, Change> changes[] = {
      {"bf16", [](auto& config) { config.training.bf16 = true; }},
      {"GPT with dropout",
       [](auto& config) {
         config.model.swiglu = false;
         config.model.normalization = "LayerNorm";
         config.model.add_bias_linear = true;
         config.model.hidden_dropout = config.model.attention_dropout = 0.1;
       }},
      {"norms of heads, and behind attention and MLP",
       [](auto& config) { config.model.qk_layernorm = config.model.post_norm = true; }},
      {"output gates", [](auto& config) { config.model.attention_output_gate = true; }},
      {"experts, a norm behind them",
       [](auto& config) {
         config.model.num_experts = 4;
         config.model.moe_router_topk = 2;
         config.model.moe_ffn_hidden_size = 24;
         config.model.moe_shared_expert_intermediate_size = 16;
         config.model.post_norm = true;
       }},
      {"norms and activations recomputed",
       [](auto& config) {
         config.training.recompute_norm = config.training.recompute_activation_function = true;
         config.training.recompute_norm_num_layers = 2;
       }},
      {"one layer recomputed",
       [](auto& config) {
         config.training.recompute_granularity = "full";
         config.training.recompute_method = "block";
         config.training.recompute_num_layers = 1;
       }},
      {"recomputation in the bubble", [](auto& config) { config.training.recompute_in_bubble = true; }},
      {"recomputation in advance",
       [](auto& config) {
         config.training.recompute_granularity = "full";
         config.training.recompute_method = "block";
         config.training.recompute_num_layers = 1;
         config.training.recompute_in_advance = true;
       }},
      {"an evaluation between",
       [](auto& config) {
         config.data.split = "50,50,0";
         config.training.eval_interval = 1;
         config.training.eval_iters = 1;
       }},
  };
  const test::TinyLayout layout{1, 2, 1, false, false, 2};
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    const auto plain = run(layout, change);
    const auto swapped = run(layout, [&](auto& config) {
      change(config);
      kAll(config);
    });
    expect_equal(swapped, plain);
    EXPECT_LT(activations(swapped[0]), activations(plain[0]));
  }
}

// 8 layers on one rank: of queries, keys, values, result and statistics two layers' worth stays, at the start of the
// backward.
TEST(SwapAttention, KeepsTwoLayersInMemory) {
  constexpr int64_t kTokens = 2 * 64, kLayers = 8, kHeads = 8, kGroups = 4, kHeadDim = 8, kHidden = 32;
  const auto of = [&](const Change& change) {
    const auto summaries = run({}, [&](train::TrainerConfig& config) {
      config.training.seq_length = 64;
      config.training.global_batch_size = 2;
      change(config);
    });
    return activations(summaries[0]);
  };
  const int64_t plain = of([](auto&) {});
  const int64_t attention = 4 * kTokens * (2 * kHeads + 2 * kGroups) * kHeadDim + 4 * kTokens * kHeads;
  const int64_t norms = 2 * 4 * kTokens * kHidden;
  const auto expect_saved = [&](const Change& change, int64_t of_layer) {
    const auto saved = static_cast<double>(plain - of(change));
    EXPECT_GE(saved, 0.95 * static_cast<double>((kLayers - 2) * of_layer));
    EXPECT_LE(saved, 1.05 * static_cast<double>((kLayers - 1) * of_layer));
  };
  expect_saved(kAttention, attention);
  expect_saved(kAll, attention + norms);
}

TEST(SwapAttention, RecomputesTheMlpsOfTheFirstLayers) {
  const auto first = [](int64_t layers) -> Change {
    return [layers](auto& config) {
      kAttention(config);
      config.training.recompute_num_layers = layers;
    };
  };
  const auto plain = run({}, [](auto&) {});
  int64_t previous = activations(run({}, kAttention)[0]);
  double flops = 0;
  for (const int64_t layers : {2, 4}) {
    const auto summaries = run({}, first(layers));
    expect_equal(summaries, plain);
    EXPECT_LT(activations(summaries[0]), previous);
    previous = activations(summaries[0]);
    const auto executed = static_cast<double>(summaries[0].steps.back().executed_flops);
    EXPECT_GT(executed, flops);
    flops = executed;
  }
}

TEST(SwapAttention, SmallTensorsStay) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 1;
  config.training.swap_attention = true;
  config.training.swap_dir = folder.path().string();
  EXPECT_EQ(test::run_on_threads(config, 1).steps.back().tier->written_bytes, 0) << "none has 512 KiB";
}

// Nano-pipe: stage s computes the gradients of weights 2 s chunk-backwards late.
TEST(NanoPipeSwap, ChangesNoBitAndKeepsTwoLayersOperandsInMemory) {
  for (const test::TinyLayout& layout : {test::TinyLayout{1, 4, 1, false, false, 2, "nanopipe"},
                                         test::TinyLayout{2, 2, 1, false, true, 2, "nanopipe"}}) {
    SCOPED_TRACE(layout.name());
    const Change larger = [](auto& config) { config.model.num_layers = 16; };
    const Change swap = [&](auto& config) {
      larger(config);
      config.parallel.use_nanopipe_swap = true;
      config.training.swap_min_tensor_kib = 0;
    };
    const auto plain = run(layout, larger);
    const auto swapped = run(layout, swap);
    const auto both = run(layout, [&](auto& config) {
      swap(config);
      kAll(config);
    });
    expect_equal(swapped, plain);
    expect_equal(both, plain);
    for (size_t rank = 0; rank < plain.size(); ++rank) {
      const train::TierUse use = swapped[rank].steps.back().tier.value();
      EXPECT_EQ(use.written_bytes, use.read_bytes);
      const bool is_first_stage = rank < static_cast<size_t>(layout.tp);
      EXPECT_EQ(use.written_bytes > 0, !is_first_stage) << "rank " << rank;
      if (is_first_stage) {
        EXPECT_EQ(activations(swapped[rank]), activations(plain[rank])) << "rank " << rank;
      } else {
        EXPECT_LT(activations(swapped[rank]), activations(plain[rank])) << "rank " << rank;
      }
      EXPECT_LT(activations(both[rank]), activations(swapped[rank])) << "rank " << rank;
    }
  }
}

TEST(ActivationSwap, CanMoveWhatAModuleOfTheFlagHas) {
  train::LayerActivations layer;
  using enum layout::SavedSlot;
  for (const layout::SavedSlotProperties& of : layout::kSavedSlots) {
    const bool of_experts = of.slot == kRouting || of.slot == kPermuted || of.slot == kShared;
    EXPECT_EQ(layer.tensor(of.slot) == nullptr, of_experts || of.name.ends_with("statistics")) << of.name;
    EXPECT_TRUE(of.swapped_with == layout::SwapModule::kNone || layer.tensor(of.slot) != nullptr) << of.name;
  }
}

// What is read is lost: the layer's tensors are zeros, not a part of them, and the tier says why.
TEST(ActivationSwap, AFileThatIsTakenAwayLeavesZeros) {
  const test::TemporaryFolder folder;
  core::Arena arena;
  train::TensorSwap tensors(/*min_bytes=*/0, arena, folder.path().string(), 0, nullptr);
  train::ActivationSwap swap(tensors);
  train::LayerActivations layer;
  layer.slots = layout::layer_slots({}, {.self_attention = true}, 0);
  const auto fill = [&](core::Tensor& tensor) {
    tensor = core::Tensor(arena, core::DType::kFp32, {3000}, core::MemoryTag::kAct);
    for (float& value : tensor.elements<float>()) value = 3;
  };
  for (core::Tensor* tensor : {&layer.attention.core.q, &layer.attention.core.out, &layer.attention.normed})
    fill(*tensor);
  swap.swap_out(layer);
  swap.settle();
  EXPECT_FALSE(layer.attention.core.q.defined());
  EXPECT_FALSE(layer.attention.core.out.defined());
  EXPECT_TRUE(layer.attention.normed.defined()) << "not of the modules";
  for (const std::string& file : test::nameless_files(folder.path())) std::filesystem::resize_file(file, 4096);
  swap.swap_in(layer);
  for (core::Tensor* tensor : {&layer.attention.core.q, &layer.attention.core.out, &layer.attention.normed}) {
    ASSERT_EQ(tensor->shape(), core::Dims({3000}));
    for (const float value : tensor->elements<float>()) ASSERT_EQ(value, 0);
  }
  EXPECT_TRUE(tensors.tier().failed());
}

}  // namespace
}  // namespace ms
