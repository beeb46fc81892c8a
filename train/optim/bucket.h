// Data parallelism of a rank's flat buffers, bucket by bucket (core/layout/gradient_buckets.h):
//
//   the gradients of a bucket are final -> partial ones are summed over TP -> they are reduced over the replicas;
//   its weights are updated -> with ZeRO-1 they are gathered -> they are read.
//
// With --overlap-grad-reduce a bucket is reduced while the backward goes on, with --overlap-param-gather it is gathered
// while the next forward does. All ranks of a group post the buckets in one order: in the first step that of their
// numbers, the last parameters of the stage first, then the one in which their gradients became final in that step (so
// that a deferred output layer holds up nobody; MindSpeed's --reset-bucket-group-order). A bucket that is final early
// waits for those before it. Experts' parameters, which other ranks hold, have buckets of their own, which come with
// those of the same layers. The order follows from the schedule, which is the same on all ranks of a stage, as are the
// places at which they post: nothing has to be agreed on.
//
// Bits do not depend on it: each element is added up in the order of the ranks, and by the rank whose block it is in.
//
// The stages of ZeRO are settings of this life (core/layout/sharding.h), whose buckets are units
// (core/layout/buffer_cut.h): of each all ranks have an equal part, so that they send and receive at once. With ZeRO-1
// the size of a bucket says how many units are posted together. From ZeRO-2 on a gradient's life is a micro-batch, not
// a step: an action of the stage takes memory for a unit's gradients, adds to them, and has them reduced and added to
// those that this rank owns. That memory is two slots of the largest unit: while the gradients in one are on their way,
// the backward adds to those in the other one. So one reduction is under way at most, and its scratch is two chunks of
// each peer. A layer's experts that other ranks hold than its rest are a bucket of their own, with a part of the slot,
// and are acquired, reduced and gathered with it. A unit that one rank has, or that nobody divides, is in its memory
// all the time: what its replicas have is added up after the last backward.
//
// With several instances of the optimizer (--num-distributed-optimizer-instances) all this is within one of them: what
// a rank owns is then summed over the instances, with ZeRO-1 bucket by bucket as each has been reduced, from ZeRO-2 on
// all at once after the last backward. Where they divide the state, too (Sharding::parts_of_state), that is a
// reduce-scatter, and new weights are gathered over them after the update.
//
// With ZeRO-3 a unit's weights are there only between acquire_weights and release_weights, in two slots again: while
// the stage reads those in one, the next ones are gathered into the other.
#pragma once

#include <cstdint>
#include <map>
#include <ranges>
#include <span>
#include <vector>

#include "core/comm/communicator.h"
#include "core/layout/gradient_buckets.h"
#include "train/model/parameter_observer.h"
#include "train/model/parameters.h"
#include "train/rank_state.h"

namespace ms::train {

struct Bucket {
  size_t unit = 0;              // its number in BufferCut::units()
  layout::FlatRange range;      // elements of the buffers
  layout::FlatRange owned;      // those that this rank owns
  std::vector<int64_t> counts;  // that each rank owns
  core::TensorView gradients;   // fp32 [elements]; undefined while there is no memory for them
  std::vector<const Parameter*> parameters;
  std::vector<const Parameter*> partial;  // of whose gradients each TP rank has a part of the sum
  int64_t partial_elems = 0;
  bool is_posted_last = true;   // those before it wait for it: --ddp-bucket-size counts them together (ZeRO-1)
  std::vector<int64_t> layers;  // that have parameters in it (ParameterObserver); from ZeRO-2 on one
  int num_final = 0;            // of them, in this step
  core::TensorView weights;     // of ZeRO-3: gathered, or on their way; else undefined
  bool are_read = false;        // these weights, by the stage
  core::Work reduction, gather;
  core::Work sum_of_instances;  // of what this rank owns, after the reduction within its instance (ZeRO-1)
};

class Buckets : public ParameterObserver {
 public:
  // parameters must outlive this object.
  Buckets(RankState& state, ParameterStore& parameters);

  const std::vector<Bucket>& all() const { return buckets_; }

  // From now on a stage announces what it does: buckets are reduced as they become final, and update() need not wait
  // for gathers with --overlap-param-gather. From ZeRO-2 on no backward runs without that.
  void follow_stage() { follows_stage_ = true; }
  void acquire_gradients(int64_t unit) override;
  void gradients_are_added(int64_t unit) override;
  void gradients_are_final(int64_t layer) override;
  void acquire_weights(int64_t unit, int64_t next) override;
  void release_weights(int64_t unit) override;

  // Reduces what has not been reduced yet. Afterwards the owned gradients are those of all replicas, from ZeRO-2 on of
  // those of this instance. Collective.
  void finish_reduction();
  // From ZeRO-2 on, after it: over the instances, else nothing. Collective.
  void sum_over_instances();
  // New owned weights reach the other ranks: at once, or with --overlap-param-gather by acquire_weights. Collective.
  // With ZeRO-3 nothing: weights are gathered when they are read.
  void gather_weights();
  // The same bucket by bucket, where gathers may begin while others are updated: buckets in the order of
  // gather_weights.
  bool gathers_while_updating() const;
  void gather_weights(Bucket& bucket);
  auto in_order_of_forward() { return std::views::reverse(buckets_); }
  void await_all_weights();

 private:
  void describe_parameters();  // adds to each bucket what it has of which layer
  void join_units();           // of ZeRO-1, up to the size of a bucket, in the order of posting
  void learn_order();          // in the first step that was followed
  Bucket& in_order(size_t place) { return buckets_[order_[place]]; }
  void sum_partial(const Bucket& bucket);  // over TP
  // With --grad-reduce-in-bf16 a bucket's gradients are narrowed to the first half of its own memory for the reduction.
  core::TensorView narrow(const Bucket& bucket) const;
  void widen(const Bucket& bucket);  // what was reduced, unless it is fp32
  void post_reduction(Bucket& bucket);
  void post_reductions();  // of buckets that are ready
  // Sums over the instances of the optimizer of what has been reduced within this one. waits: of all that is posted.
  void post_sums_of_instances(bool waits);
  // What a reduction works on: the gradients, or narrow()'s result. All of the bucket, and what this rank owns.
  core::TensorView reduced(const Bucket& bucket) const;
  core::TensorView owned_reduced(const Bucket& bucket) const;
  void gather_at_once();
  void gather_over_instances();
  core::Communicator& instances_of(layout::Group replicas) const {
    const bool is_dense = replicas == layout::Group::kDpCp;
    return *state_.groups.of_training(is_dense ? layout::Group::kDpReplica : layout::Group::kExpertDpReplica);
  }
  const layout::BufferCut::Unit& unit_of(const Bucket& bucket) const { return parameters_.cut().units()[bucket.unit]; }
  core::Communicator& replicas_of(const Bucket& bucket) const { return parameters_.replicas(unit_of(bucket)); }
  core::Communicator& owners_of(const Bucket& bucket) const { return parameters_.owners(unit_of(bucket)); }
  bool is_divided(const Bucket& bucket) const {
    return parameters_.trained_elems() > 0 && parameters_.cut().num_owners(unit_of(bucket)) > 1;
  }
  bool has_instances() const { return sharding().num_instances > 1; }
  bool is_exchanged(const Bucket& bucket) const {
    return parameters_.trained_elems() > 0 && replicas_of(bucket).size() > 1;
  }
  const layout::Sharding& sharding() const { return parameters_.cut().sharding(); }

  // From ZeRO-2 on. Those of a unit that are divided, which have a slot together; empty if no parameter of it trains
  // here.
  std::span<Bucket* const> divided_of(int64_t unit) const;
  void finish_reduction_under_way();
  void finish_what_stays();  // units that are not divided
  // One that no bucket uses; undefined if there is none.
  core::TensorView free_slot(const std::vector<core::Tensor>& slots, core::TensorView Bucket::*of_bucket) const;
  // Gives each bucket its part of a slot.
  static void take_slot(std::span<Bucket* const> buckets, const core::TensorView& slot,
                        core::TensorView Bucket::*of_bucket);
  void await_gathers(int64_t unit);
  void start_gather(std::span<Bucket* const> buckets, const core::TensorView& slot);

  RankState& state_;
  ParameterStore& parameters_;
  core::ReduceOp op_;  // of gradients over replicas
  bool follows_stage_ = false;
  // For unreduced gradients and gathered weights, each of the largest unit.
  std::vector<core::Tensor> gradient_slots_, weight_slots_;
  std::span<Bucket* const> reducing_;  // of one unit
  std::vector<Bucket> buckets_;
  std::map<int64_t, std::vector<Bucket*>> divided_of_unit_;
  std::map<int64_t, std::vector<size_t>> buckets_of_layer_;
  std::map<int64_t, bool> is_final_;  // of each layer, in this step
  std::vector<size_t> order_;         // of posting: numbers of buckets
  std::vector<size_t> finals_;        // in the order in which they became final, in this step
  bool has_learnt_ = false;
  size_t ready_ = 0;    // buckets, in this order, that are summed over TP
  size_t posted_ = 0;   // of them
  size_t summed_ = 0;   // of these, whose sums over the instances are posted
  size_t gathers_ = 0;  // that nobody has waited for
};

}  // namespace ms::train
