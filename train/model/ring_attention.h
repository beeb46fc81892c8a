// Core attention of ranks that share a sequence and pass its keys and values around (ring attention, Liu et al. 2023;
// MindSpeed's megatron_cp_algo, Megatron's --cp-comm-type p2p). Each rank has a part from the front of the sequence and
// one from the back (SequenceShare), so that all compute as many scores in each step: its own causal ones; all queries
// with the front half of the keys of a rank before it; the back half of the queries with all keys of one behind it.
// While a block is attended, the next one is on its way. The result is fp32 until the last block has been added. Of
// packed samples, the documents in common are attended (document_ranges.h), and blocks without any skipped.
//
// Windows, biases by distance (ALiBi) and dropout depend on how far apart positions are. With them the front and the
// back of the queries attend the front and the back of a block one by one, and none of it where a window ends before.
// So do those of samples with a prefix, of whose keys queries before them see some, too. Of samples with a grid
// (core/layout/mask_grid.h) queries attend the runs of a block that they see, and no block without any.
//
// A double ring (MindSpeed's --cp-window-size; Gu et al. 2024, LoongTrain) divides the ranks into windows. Blocks go
// around in each window, while those that a window begins with are on their way to the next one, for as long as the
// window takes. As many blocks travel as in one ring, fewer of them between windows at a time.
//
// With a policy of caching (MindSpeed's context_parallel_kv_cache.py) forward keeps the blocks that come, which the
// backward then need not send again: bits are the same.
#pragma once

#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "core/layout/context_parallel.h"
#include "train/model/core_attention.h"
#include "train/ops/context.h"

namespace ms::train {

class RingAttention : public CoreAttention {
 public:
  struct Options {
    core::Communicator* window = nullptr;  // neighbours that form an inner ring; null: there is one ring
    // A block is on its way while another is attended; else it has arrived before.
    bool overlaps = true;
    layout::KvCachePolicy cache = layout::KvCachePolicy::kNone;
  };
  // ring: the ranks that share a sequence, or with windows those that have this rank's place in theirs. params: without
  // a sequence's.
  RingAttention(ops::Context& ops, core::Communicator& ring, const ops::AttentionParams& params)
      : RingAttention(ops, ring, params, {}) {}
  RingAttention(ops::Context& ops, core::Communicator& ring, const ops::AttentionParams& params, Options options)
      : ops_(ops), ring_(ring), params_(params), options_(options) {}

  // saved.k and saved.v become the block that came last, with which the backward begins; of what is cached all blocks,
  // [ring x seq, batch, groups / tp, d], in the order in which they came.
  void forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override;
  // The rings in reverse. The gradients of keys travel with them: their sums over a window arrive where the window
  // began, and from there go back over the windows to where they belong.
  ops::QkvGradients backward(core::Tensor dout, CoreAttentionActivations& saved,
                             const SequenceContext& sequence) override;
  // Keys and values go straight to the rank where they came last. Nothing may be cached.
  void refill(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override;

 private:
  // Keys or values of a block, or their gradients: a tensor of their own, or rows of a cache.
  struct Part {
    core::Tensor owner = {};  // undefined: a cache's
    core::TensorView rows = {};

    Part() = default;
    explicit Part(core::Tensor tensor) : owner(std::move(tensor)), rows(owner.view()) {}
    explicit Part(const core::TensorView& of_cache) : rows(of_cache) {}
    operator const core::TensorView&() const { return rows; }
    Part share() { return owner.defined() ? Part(owner.share()) : Part(rows); }
  };
  struct Keys {
    Part k, v;
    Keys share() { return {k.share(), v.share()}; }
  };
  // What goes from rank to rank.
  struct Travels {
    bool k = true, v = true;
  };
  // On its way to one neighbour while another comes from the other one.
  struct Hop;
  struct Block;
  struct Sums;
  class QueryGradients;

  bool attends_segments() const {
    return params_.prefix > 0 || params_.window > 0 || !params_.alibi_slopes.empty() || params_.dropout.probability > 0;
  }
  int windows() const { return ring_.size(); }
  int window_size() const { return options_.window != nullptr ? options_.window->size() : 1; }
  // The ranks of all windows in order, and the one that is so many windows and places before this rank.
  int place() const { return place_before(0, 0); }
  int place_before(int windows, int ranks) const;
  // What this rank's queries see of the keys of a rank, windows and ranks before it: each query of its own keys, then
  // as many more in each block as see any there.
  std::vector<Block> blocks_before(int windows, int ranks, const core::TensorView& queries,
                                   const SequenceContext& sequence) const;
  Keys keys_like(const Keys& keys);
  bool caches_keys() const { return options_.cache != layout::KvCachePolicy::kNone; }
  bool caches_values() const { return options_.cache == layout::KvCachePolicy::kFull; }
  // The first block of a forward, with room behind it for the others where they are cached.
  Keys begin(core::Tensor k, core::Tensor v, CoreAttentionActivations& saved);
  // Where a block of the shape of `keys` is received: the number of it is that of windows and ranks before this one.
  Keys room_for(int windows, int ranks, const Keys& keys, const CoreAttentionActivations& saved);
  // Begins to send `keys` to the neighbour at distance `to`, and to receive others from the one at -to, into `room`.
  void exchange(Hop& hop, core::Communicator& ranks, Keys keys, Keys room, int to, Travels travels);

  ops::Context& ops_;
  core::Communicator& ring_;
  ops::AttentionParams params_;
  Options options_;
};

}  // namespace ms::train
