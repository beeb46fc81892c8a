// Each combination of the flags of recomputation and swap against the decision of each slot that their help texts
// promise, written here once more, place by place.
#include "core/layout/slot_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/small_model.h"

namespace ms::layout {
namespace {

using enum SavedSlot;

constexpr SlotDecision kKeep = SlotDecision::kKeep, kRecompute = SlotDecision::kRecompute, kSwap = SlotDecision::kSwap;

TrainingStep step_of(int64_t layers, int stages, int chunks, int64_t microbatches = 8) {
  TrainingStep step{.model = test::small_model(64), .seq_length = 4, .num_microbatches = microbatches};
  step.model.num_layers = layers;
  step.layout = {.pipeline_model_parallel_size = stages, .virtual_pipeline_model_parallel_size = chunks};
  return step;
}

// The flags of a case: what RecomputePlan and SwapPlan are set to.
struct Flags {
  bool norms, activation, mlp;                           // in all layers, or behind those that run again
  bool input_norm, self_attention, post_attention_norm;  // --swap-modules
  bool block;                                            // the first layer of a chunk runs again
  bool latent;                                           // --recompute-mla-up-proj
};

Flags flags_of(int bits) {
  const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
  return {bit(0), bit(1), bit(2), bit(3), bit(4), bit(5), bit(6), bit(7)};
}

TrainingStep step_of(const Flags& flags) {
  TrainingStep step = step_of(/*layers=*/8, /*stages=*/2, /*chunks=*/2);
  step.recompute = RecomputePlan({.granularity = flags.block ? "full" : "",
                                  .method = flags.block ? "block" : "",
                                  .num_layers = flags.block ? 1 : 0,
                                  .norm_module = flags.norms && !flags.block,
                                  .mlp_module = flags.mlp,
                                  .latent_module = flags.latent,
                                  .norm = flags.norms,
                                  .activation = flags.activation});
  step.swap = {.input_norm = flags.input_norm,
               .self_attention = flags.self_attention,
               .post_attention_norm = flags.post_attention_norm};
  return step;
}

// The help texts, slot by slot.
SlotDecision expected(const Flags& flags, SavedSlot slot) {
  switch (slot) {
    case kInputNorm:
      return flags.norms ? kRecompute : flags.input_norm ? kSwap : kKeep;
    case kQ:
    case kK:
    case kV:
      return flags.latent ? kRecompute : flags.self_attention ? kSwap : kKeep;
    case kQLatent:
    case kKvLatent:
    case kQRaw:
    case kKRaw:
    case kGate:
    case kOut:
    case kWholeOut:
    case kLse:
      return flags.self_attention ? kSwap : kKeep;
    case kPostAttentionNorm:
      return flags.norms || flags.mlp ? kRecompute : flags.post_attention_norm ? kSwap : kKeep;
    case kFc1:
      return flags.mlp ? kRecompute : kKeep;
    case kProduct:
      return flags.mlp || flags.activation ? kRecompute : kKeep;
    default:
      return kKeep;  // residual stream, statistics, what norms behind the blocks read
  }
}

TEST(SlotPolicy, DecidesAsTheFlagsSayInEachPlace) {
  for (int bits = 0; bits < 1 << 8; ++bits) {
    const Flags flags = flags_of(bits);
    const TrainingStep step = step_of(flags);
    for (int stage = 0; stage < 2; ++stage) {
      const SlotPolicy policy(step, stage);
      for (int chunk = 0; chunk < 2; ++chunk) {
        for (int64_t microbatch = 0; microbatch < step.num_microbatches; ++microbatch) {
          const SlotTable& table = policy.of(microbatch, chunk);
          ASSERT_EQ(table.layers(), 2);
          // The last place turns around: its last layer is needed at once.
          const Flags stays = {flags.norms, flags.activation, flags.mlp,   false, false,
                               false,       flags.block,      flags.latent};
          const bool turns = stage == 1 && chunk == 1;
          for (int64_t layer = 0; layer < 2; ++layer) {
            const bool again = flags.block && layer == 0;
            EXPECT_EQ(table[layer].runs_again(), again);
            for (const SavedSlotProperties& of : kSavedSlots) {
              const SlotDecision own = expected(turns && layer == 1 ? stays : flags, of.slot);
              const SlotDecision whole = of.slot == kInput ? kKeep : kRecompute;
              ASSERT_EQ(table[layer][of.slot], again ? whole : own)
                  << "flags " << bits << ", stage " << stage << ", chunk " << chunk << ", layer " << layer << ", "
                  << of.name;
            }
          }
        }
      }
    }
  }
}

TEST(SlotPolicy, CountsLayersBehindThoseThatRunAgain) {
  TrainingStep step = step_of(/*layers=*/10, /*stages=*/2, /*chunks=*/1);
  step.recompute = RecomputePlan({.granularity = "full",
                                  .method = "block",
                                  .num_layers = 2,
                                  .norm = true,
                                  .activation = true,
                                  .norm_num_layers = 1});
  for (int stage = 0; stage < 2; ++stage) {
    const SlotPolicy policy(step, stage);
    const SlotTable& table = policy.of(0, 0);
    for (int64_t layer = 0; layer < 5; ++layer) {
      EXPECT_EQ(table[layer].runs_again(), layer < 2) << layer;
      EXPECT_EQ(table[layer].module_drops(kInputNorm), layer == 2) << layer;
      EXPECT_EQ(table[layer].module_drops(kPostAttentionNorm), layer == 2) << layer;
      EXPECT_EQ(table[layer].module_drops(kProduct), layer >= 2) << layer;
      EXPECT_FALSE(table[layer].module_drops(kFc1)) << layer;
    }
  }
}

TEST(SlotPolicy, HasANumberOfLayersForEachStage) {
  for (const RecomputedModule module : {RecomputedModule::kLayer, RecomputedModule::kMlp}) {
    TrainingStep step = step_of(/*layers=*/6, /*stages=*/2, /*chunks=*/1);
    step.recompute = RecomputePlan({.module_list = {2, 1}, .module = module});
    for (int stage = 0; stage < 2; ++stage) {
      const SlotPolicy policy(step, stage);
      for (int64_t layer = 0; layer < 3; ++layer) {
        const bool among = layer < (stage == 0 ? 2 : 1);
        const LayerSlots& slots = policy.of(3, 0)[layer];
        EXPECT_EQ(slots.runs_again(), among && module == RecomputedModule::kLayer);
        EXPECT_EQ(slots[kFc1], among ? kRecompute : kKeep);
        EXPECT_EQ(slots[kQ], among && module == RecomputedModule::kLayer ? kRecompute : kKeep);
      }
    }
  }
}

// Layer l of chunk c is number l x chunks + c of the stage.
TEST(SlotPolicy, MayCountTheLayersOfAStage) {
  TrainingStep step = step_of(/*layers=*/8, /*stages=*/2, /*chunks=*/2);
  step.recompute = RecomputePlan({.granularity = "full", .method = "block", .num_layers = 3, .chunks = 2});
  const SlotPolicy policy(step, 0);
  for (int chunk = 0; chunk < 2; ++chunk) {
    for (int64_t layer = 0; layer < 2; ++layer)
      EXPECT_EQ(policy.of(0, chunk)[layer].runs_again(), 2 * layer + chunk < 3) << chunk << ", " << layer;
  }
}

TEST(SlotPolicy, KeepsTheInputOfAGroupAlone) {
  TrainingStep step = step_of(/*layers=*/7, /*stages=*/1, /*chunks=*/1);
  step.recompute = RecomputePlan({.granularity = "full", .method = "uniform", .num_layers = 3});
  const SlotPolicy policy(step, 0);
  const SlotTable& table = policy.of(0, 0);
  for (int64_t layer = 0; layer < 7; ++layer) {
    EXPECT_TRUE(table[layer].runs_again());
    EXPECT_EQ(table[layer][kInput], layer % 3 == 0 ? kKeep : kRecompute) << layer;
    EXPECT_EQ(table.group_begin(layer), layer / 3 * 3) << layer;
    EXPECT_EQ(table.ends_group(layer), layer % 3 == 2 || layer == 6) << layer;
  }
  const SlotTable plain(RecomputePlan(), SwapPlan(), 3, {});
  for (int64_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(plain.group_begin(layer), layer);
    EXPECT_TRUE(plain.ends_group(layer));
  }
}

// The schedule says which micro-batches drop their layers: all, those in a bubble, or those of all places but the last.
TEST(SlotPolicy, DropsTheMicrobatchesThatTheScheduleRunsAgain) {
  constexpr int kStages = 2, kChunks = 2;
  for (const RecomputeTime time : {RecomputeTime::kAtBackward, RecomputeTime::kInAdvance, RecomputeTime::kInBubble}) {
    TrainingStep step = step_of(/*layers=*/8, kStages, kChunks);
    step.schedule.recompute = time;
    step.recompute = time == RecomputeTime::kInBubble
                         ? RecomputePlan({.granularity = "full", .method = "chunk", .norm = true})
                         : RecomputePlan({.granularity = "full", .method = "block", .num_layers = 1});
    step.swap = {.self_attention = true};
    for (int stage = 0; stage < kStages; ++stage) {
      const auto actions = schedule_training(step.schedule, stage, kStages, kChunks, step.num_microbatches);
      const SlotPolicy policy(step, stage, actions);
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        int64_t dropped = 0;
        for (int64_t microbatch = 0; microbatch < step.num_microbatches; ++microbatch) {
          const ScheduleAction again{ScheduleAction::kRecompute, microbatch, chunk};
          const bool drops = time == RecomputeTime::kAtBackward || std::ranges::count(actions, again) > 0;
          dropped += drops ? 1 : 0;
          const SlotTable& table = policy.of(microbatch, chunk);
          EXPECT_EQ(&policy.of({ScheduleAction::kForward, microbatch, chunk}), &table);
          EXPECT_EQ(table[0].runs_again(), drops) << stage << ", " << chunk << ", " << microbatch;
          EXPECT_EQ(table[0][kFc1], drops ? kRecompute : kKeep);
          EXPECT_EQ(table[0][kQ], drops ? kRecompute : kSwap) << "of the others the swap moves it";
          EXPECT_EQ(table[0].module_drops(kInputNorm), time == RecomputeTime::kInBubble);
          EXPECT_EQ(table[1].runs_again(), drops && time == RecomputeTime::kInBubble);
        }
        int64_t shared = 0, all = 0;
        for (const SlotPolicy::Share& share : policy.shares(chunk)) {
          all += share.microbatches;
          if (share.table[0].runs_again()) shared += share.microbatches;
        }
        EXPECT_EQ(all, step.num_microbatches);
        EXPECT_EQ(shared, dropped);
      }
    }
  }
  TrainingStep step = step_of(/*layers=*/8, 4, 2);
  step.schedule.recompute = RecomputeTime::kInBubble;
  step.recompute = RecomputePlan({.granularity = "full", .method = "chunk"});
  const SlotPolicy policy(step, 0);
  bool differ = false;
  for (int chunk = 0; chunk < 2; ++chunk) differ |= policy.shares(chunk).size() > 1;
  EXPECT_TRUE(differ) << "two micro-batches of one chunk have tables of their own";
}

TEST(SlotPolicy, HasTablesOfChunksWithoutLayers) {
  TrainingStep step = step_of(/*layers=*/3, /*stages=*/2, /*chunks=*/1);
  step.layout.num_layer_list = {3, 0};
  EXPECT_EQ(SlotPolicy(step, 0).of(0, 0).layers(), 3);
  const SlotPolicy none(step, 1);
  EXPECT_EQ(none.of(7, 0).layers(), 0);
  ASSERT_EQ(none.shares(0).size(), 1u);
  EXPECT_EQ(none.shares(0)[0].microbatches, 8);
}

// As in Megatron, whose --recompute-modules mlp is of dense layers.
TEST(SlotPolicy, RecomputationOfMlpsLeavesLayersWithExpertsAlone) {
  const SlotTable mlps(RecomputePlan({.mlp_module = true}), {}, 2, {}, {false, true});
  EXPECT_EQ(mlps[0][kFc1], kRecompute);
  for (const SavedSlot slot : {kPostAttentionNorm, kFc1, kProduct, kRouting, kPermuted, kShared})
    EXPECT_EQ(mlps[1][slot], kKeep) << slot_name(slot);
  const SlotTable rest(RecomputePlan({.norm = true, .activation = true}), {}, 2, {}, {false, true});
  EXPECT_EQ(rest[1][kPostAttentionNorm], kRecompute);
  EXPECT_EQ(rest[1][kProduct], kRecompute);
  EXPECT_EQ(rest[1][kFc1], kKeep);
}

}  // namespace
}  // namespace ms::layout
