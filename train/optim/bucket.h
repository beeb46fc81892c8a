// Data parallelism of a rank's flat buffers, bucket by bucket (core/layout/gradient_buckets.h):
//
//   the gradients of a bucket are final -> partial ones are summed over TP -> they are reduced over the replicas;
//   its weights are updated -> with ZeRO-1 they are gathered -> they are read.
//
// With --overlap-grad-reduce a bucket is reduced while the backward goes on, with --overlap-param-gather it is gathered
// while the next forward does. All ranks of a group post the buckets in one order, that of their numbers, whatever the
// order in which their gradients become final: the last parameters of the stage first. A bucket that is final early
// waits for those before it. Experts' parameters, which other ranks hold, have buckets of their own, which come with
// those of the same layers. And they post them at the same places of their schedule, so that the order among other
// operations of the group is one, too. So no order has to be learnt or agreed on.
//
// Bits do not depend on it: each element is added up in the order of the ranks, and by the rank whose block it is in.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/comm/communicator.h"
#include "core/layout/gradient_buckets.h"
#include "train/model/parameter_observer.h"
#include "train/model/parameters.h"
#include "train/optim/owned_ranges.h"
#include "train/rank_state.h"

namespace ms::train {

struct Bucket {
  size_t section = 0;                     // of the buffers
  layout::FlatRange range;                // elements of the buffers
  layout::FlatRange owned;                // those that this rank owns
  std::vector<int64_t> counts;            // that each rank owns
  std::vector<const Parameter*> partial;  // of whose gradients each TP rank has a part of the sum
  int64_t partial_elems = 0;
  std::vector<int64_t> layers;  // that have parameters in it (ParameterObserver)
  int num_final = 0;            // of them, in this step
  core::Work reduction, gather;
};

class Buckets : public ParameterObserver {
 public:
  // parameters must outlive this object.
  Buckets(RankState& state, ParameterStore& parameters);

  const std::vector<Bucket>& all() const { return buckets_; }
  // The elements of the buffers whose optimizer state this rank holds.
  const OwnedRanges& owned() const { return owned_; }

  // From now on a stage announces what it does: buckets are reduced as they become final, and update() need not wait
  // for gathers with --overlap-param-gather.
  void follow_stage() { follows_stage_ = true; }
  void gradients_are_final(int64_t layer) override;
  void await_weights(int64_t layer) override;

  // Reduces what has not been reduced yet. Afterwards the owned gradients are those of all replicas. Collective.
  void finish_reduction();
  // New owned weights reach the other ranks: at once, or with --overlap-param-gather by await_weights. Collective.
  void gather_weights();
  void await_all_weights();

 private:
  void describe_parameters();              // adds to each bucket what it has of which layer
  void sum_partial(const Bucket& bucket);  // over TP
  // With --grad-reduce-in-bf16 a bucket's gradients are narrowed to the first half of its own memory for the reduction.
  core::TensorView narrow(const Bucket& bucket);
  void widen(const Bucket& bucket);  // what was reduced, unless it is fp32
  void post_reductions();            // of buckets that are ready
  void gather_at_once();
  core::Communicator& replicas_of(const Bucket& bucket) const { return parameters_.replicas(bucket.section); }
  bool is_exchanged(const Bucket& bucket) const {
    return replicas_of(bucket).size() > 1 && parameters_.grads().size() > 0;
  }

  RankState& state_;
  ParameterStore& parameters_;
  bool distributed_;
  bool follows_stage_ = false;
  OwnedRanges owned_;
  std::vector<Bucket> buckets_;
  std::map<int64_t, std::vector<size_t>> buckets_of_layer_;
  std::map<int64_t, bool> is_final_;  // of each layer, in this step
  size_t ready_ = 0;                  // buckets that are summed over TP
  size_t posted_ = 0;                 // of them
  size_t gathers_ = 0;                // that nobody has waited for
};

}  // namespace ms::train
