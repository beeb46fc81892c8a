// The tensors that a layer saves between its forward and its backward, each in a named slot, and what becomes of them
// in between. slot_policy.h decides it, for each micro-batch and layer; modules, executor, swap and formulas ask it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "core/layout/context_parallel.h"

namespace ms::layout {

// In the order in which a forward fills them. A new slot: a value here, its row in kSavedSlots, its tensor in
// LayerActivations::tensor (train/memory/activations.h), its bytes in LayerBytes (formulas/layer_replay.cpp).
enum class SavedSlot : uint8_t {
  kInput,      // the residual stream
  kInputNorm,  // what linear_qkv reads
  kInputNormStatistics,
  kQRaw,  // with qk_layernorm: queries and keys before it; of latent attention the vectors that they come from
  kKRaw,
  kQNormStatistics,
  kKNormStatistics,
  kQLatent,  // of latent attention: what linear_q_up_proj and linear_kv_up_proj read
  kKvLatent,
  kSharedKey,  // the part of the keys that all heads share, where they are recomputed
  kGate,       // of an output gate
  kQ,          // as core attention reads them
  kK,
  kV,
  kOut,              // what core attention gives
  kWholeOut,         // the same of all positions on some heads, where ranks that share a sequence exchange heads
  kLse,              // its softmax statistics
  kAttentionBranch,  // with post_norm: what the norm behind attention reads
  kAttentionBranchStatistics,
  kPostAttention,      // the residual stream after attention
  kPostAttentionNorm,  // what linear_fc1 reads
  kPostAttentionNormStatistics,
  kRouting,    // of a layer with experts: scores, choices and weights of the tokens, and the rows that they have
  kPermuted,   // the same: what the experts read
  kFc1,        // what the activation reads; of the experts that the router chooses from
  kProduct,    // what linear_fc2 reads; of these and shared experts together
  kShared,     // of shared experts what the activation reads; with a gate, what it multiplies, and itself
  kMlpBranch,  // with post_norm: what the norm behind the MLP reads
  kMlpBranchStatistics,
};

// Parts of a layer that a module recomputes by itself, without running the layer again: a set of bits.
using RecomputedParts = uint16_t;
inline constexpr RecomputedParts kRecomputedNorms = 1;       // the outputs of the norms before attention and MLP
inline constexpr RecomputedParts kRecomputedActivation = 2;  // the output of the MLP's activation function
inline constexpr RecomputedParts kRecomputedMlp = 4;         // of the MLP's norm, linear_fc1 and activation
// Of layers with experts, which do not have the MLP's.
inline constexpr RecomputedParts kRecomputedMoe = 8;  // all: norm, router, exchange, linear_fc1, activation
inline constexpr RecomputedParts kRecomputedMoeActivation = 16;
inline constexpr RecomputedParts kRecomputedSharedExperts = 32;
inline constexpr RecomputedParts kRecomputedDispatch = 64;  // what the experts read, and the activation
inline constexpr RecomputedParts kRecomputedExperts = 128;  // linear_fc1 of all experts
inline constexpr RecomputedParts kRecomputedOfExperts =
    kRecomputedMoe | kRecomputedMoeActivation | kRecomputedSharedExperts | kRecomputedDispatch | kRecomputedExperts;
inline constexpr RecomputedParts kRecomputedLatent = 256;  // of latent attention's up projections

// What --swap-modules names.
enum class SwapModule : uint8_t { kNone, kInputNorm, kSelfAttention, kPostAttentionNorm };

struct SavedSlotProperties {
  SavedSlot slot;
  std::string_view name;                        // in plans and errors
  RecomputedParts recomputed_with = 0;          // any of these parts
  SwapModule swapped_with = SwapModule::kNone;  // kNone: it stays in memory
};
// Of each slot, in their order.
inline constexpr SavedSlotProperties kSavedSlots[] = {
    {SavedSlot::kInput, "input"},
    {SavedSlot::kInputNorm, "input_norm", kRecomputedNorms, SwapModule::kInputNorm},
    {SavedSlot::kInputNormStatistics, "input_norm_statistics"},
    {SavedSlot::kQRaw, "q_raw", 0, SwapModule::kSelfAttention},
    {SavedSlot::kKRaw, "k_raw", 0, SwapModule::kSelfAttention},
    {SavedSlot::kQNormStatistics, "q_norm_statistics"},
    {SavedSlot::kKNormStatistics, "k_norm_statistics"},
    {SavedSlot::kQLatent, "q_latent", 0, SwapModule::kSelfAttention},
    {SavedSlot::kKvLatent, "kv_latent", 0, SwapModule::kSelfAttention},
    {SavedSlot::kSharedKey, "shared_key"},
    {SavedSlot::kGate, "gate", 0, SwapModule::kSelfAttention},
    {SavedSlot::kQ, "q", kRecomputedLatent, SwapModule::kSelfAttention},
    {SavedSlot::kK, "k", kRecomputedLatent, SwapModule::kSelfAttention},
    {SavedSlot::kV, "v", kRecomputedLatent, SwapModule::kSelfAttention},
    {SavedSlot::kOut, "out", 0, SwapModule::kSelfAttention},
    {SavedSlot::kWholeOut, "whole_out", 0, SwapModule::kSelfAttention},
    {SavedSlot::kLse, "lse", 0, SwapModule::kSelfAttention},
    {SavedSlot::kAttentionBranch, "attention_branch"},
    {SavedSlot::kAttentionBranchStatistics, "attention_branch_statistics"},
    {SavedSlot::kPostAttention, "post_attention"},
    {SavedSlot::kPostAttentionNorm, "post_attention_norm", kRecomputedNorms | kRecomputedMlp | kRecomputedMoe,
     SwapModule::kPostAttentionNorm},
    {SavedSlot::kPostAttentionNormStatistics, "post_attention_norm_statistics"},
    {SavedSlot::kRouting, "routing", kRecomputedMoe},
    {SavedSlot::kPermuted, "permuted", kRecomputedMoe | kRecomputedDispatch},
    {SavedSlot::kFc1, "fc1", kRecomputedMlp | kRecomputedMoe | kRecomputedExperts},
    {SavedSlot::kProduct, "product",
     kRecomputedActivation | kRecomputedMlp | kRecomputedMoe | kRecomputedMoeActivation | kRecomputedDispatch},
    {SavedSlot::kShared, "shared", kRecomputedMoe | kRecomputedSharedExperts | kRecomputedExperts},
    {SavedSlot::kMlpBranch, "mlp_branch"},
    {SavedSlot::kMlpBranchStatistics, "mlp_branch_statistics"},
};
inline constexpr size_t kNumSavedSlots = std::size(kSavedSlots);
constexpr size_t slot_index(SavedSlot slot) { return static_cast<size_t>(slot); }
constexpr std::string_view slot_name(SavedSlot slot) { return kSavedSlots[slot_index(slot)].name; }

enum class SlotDecision : uint8_t { kKeep, kRecompute, kSwap };
std::string_view decision_name(SlotDecision decision);  // "keep", ..

// What becomes of each slot of one layer, for one micro-batch. At first all are kept.
class LayerSlots {
 public:
  // Between forward and backward.
  SlotDecision operator[](SavedSlot slot) const {
    if (!runs_again_) return own_[slot_index(slot)];
    return slot == SavedSlot::kInput && keeps_input_ ? SlotDecision::kKeep : SlotDecision::kRecompute;
  }
  // Whether the whole layer runs again before its backward: it drops all at the end of its forward.
  bool runs_again() const { return runs_again_; }
  // Whether the module drops the slot as soon as its forward has read it, and computes it in its backward from what it
  // has. Holds for each run of the layer.
  bool module_drops(SavedSlot slot) const { return own_[slot_index(slot)] == SlotDecision::kRecompute; }

  void decide(SavedSlot slot, SlotDecision decision) { own_[slot_index(slot)] = decision; }
  // Of kK and kV: a ring of ranks that share a sequence keeps every block that comes.
  void cache_blocks(KvCachePolicy policy) { kv_cache_ = policy; }
  KvCachePolicy kv_cache() const { return kv_cache_; }
  // Also these parts are recomputed by their modules.
  void recompute(RecomputedParts parts);
  // keeps_input: false: a layer before it, which runs again too, gives the input.
  void run_again(bool keeps_input) { runs_again_ = true, keeps_input_ = keeps_input; }

  // What the modules drop of a layer that has run again as far as its backward reads (TransformerLayer::refill): of the
  // MLP they keep what the activation reads, and do not compute its result. post_norm: the model's; the MLP then runs
  // to its end.
  LayerSlots refilled(bool post_norm) const;
  // Of a forward that no backward follows.
  static LayerSlots all_dropped();

 private:
  std::array<SlotDecision, kNumSavedSlots> own_{};  // of a layer that does not run again
  bool runs_again_ = false, keeps_input_ = true;
  KvCachePolicy kv_cache_ = KvCachePolicy::kNone;
};

}  // namespace ms::layout
