#include "train/optim/bucket.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <ranges>
#include <utility>

#include "core/error.h"
#include "core/tensor.h"
#include "kernels/bf16.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

// The part of `range` that a rank owns, whose blocks in it have so many elements.
layout::FlatRange owned_of(layout::FlatRange range, const std::vector<int64_t>& counts, int rank) {
  const auto own = counts.begin() + rank;
  const int64_t begin = range.begin + std::accumulate(counts.begin(), own, int64_t{0});
  return {begin, begin + *own};
}

core::TensorView part_of(const core::TensorView& buffer, layout::FlatRange range) {
  return buffer.rows(range.begin, range.end);
}

// The equal part of each rank of a group.
core::TensorView block_of(const core::TensorView& all, const core::Communicator& ranks) {
  const layout::FlatRange block = layout::block_of_buffer(all.size(), ranks.size(), ranks.rank());
  return all.rows(block.begin, block.end);
}

// The first layer that has parameters in a bucket: the last one whose gradients become final.
int64_t first_layer(const Bucket& bucket) {
  return bucket.layers.empty() ? -1 : *std::ranges::min_element(bucket.layers);
}

}  // namespace

Buckets::Buckets(RankState& state, ParameterStore& parameters)
    : state_(state),
      parameters_(parameters),
      op_(state.config.parallel.ddp_average_in_collective ? core::ReduceOp::kMean : core::ReduceOp::kSum) {
  const layout::BufferCut& cut = parameters.cut();
  for (const layout::FlatRange& range : layout::gradient_buckets(cut, bucket_settings(state.config.parallel))) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.range = range;
    bucket.counts = cut.owned_counts(range);
    if (parameters.trained_elems() > 0)
      bucket.unit = static_cast<size_t>(&cut.unit_at(range.begin) - cut.units().data());
    bucket.owned = is_divided(bucket) ? owned_of(range, bucket.counts, owners_of(bucket).rank()) : range;
    const bool stays = !sharding().gradients() || !is_divided(bucket);
    if (stays && range.begin < range.end) bucket.gradients = parameters.owned_grads(range);
  }
  const core::Dims unit = {cut.largest_unit()};
  for (int64_t slot = 0; slot < layout::unit_slots(cut); ++slot) {
    if (sharding().gradients())
      gradient_slots_.emplace_back(state.ops.arena, core::DType::kFp32, unit, core::MemoryTag::kGrad);
    if (sharding().weights())
      weight_slots_.emplace_back(state.ops.arena, state.config.params_dtype(), unit, core::MemoryTag::kParam);
  }
  describe_parameters();
  if (!sharding().gradients()) std::ranges::stable_sort(buckets_, std::ranges::greater(), first_layer);
  order_.resize(buckets_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  finals_.reserve(buckets_.size());
  join_units();
  for (size_t number = 0; number < buckets_.size(); ++number) {
    for (const int64_t layer : buckets_[number].layers) {
      buckets_of_layer_[layer].push_back(number);
      is_final_[layer] = false;
      if (sharding().gradients() && is_divided(buckets_[number])) divided_of_unit_[layer].push_back(&buckets_[number]);
    }
  }
}

void Buckets::describe_parameters() {
  for (const Parameter& parameter : parameters_.all()) {
    if (!parameter.trains()) continue;
    const auto holds = [&](const Bucket& bucket) {
      return parameter.offset_elems >= bucket.range.begin && parameter.offset_elems < bucket.range.end;
    };
    const auto found = std::ranges::find_if(buckets_, holds);
    MS_CHECK(found != buckets_.end(), parameter.spec.key, " is in no bucket");
    found->parameters.push_back(&parameter);
    if (parameter.grad_is_partial) {
      found->partial.push_back(&parameter);
      found->partial_elems += parameter.size();
    }
    const int64_t layer = sharding().gradients() ? layout::unit_of(parameter.spec) : parameter.spec.layer;
    if (found->layers.empty() || found->layers.back() != layer) found->layers.push_back(layer);
  }
}

void Buckets::join_units() {
  const layout::BufferCut& cut = parameters_.cut();
  if (!cut.cuts_layers() || sharding().gradients()) return;
  int64_t elements = 0, joined = 0;
  for (const layout::BufferCut::Unit& unit : cut.units()) elements += unit.num_elements;
  const int64_t least =
      layout::bucket_elems(bucket_settings(state_.config.parallel), sharding().data_parallel_size, elements);
  for (const size_t number : order_) {
    Bucket& bucket = buckets_[number];
    joined += bucket.range.end - bucket.range.begin;
    bucket.is_posted_last = number == order_.back() || (least > 0 && joined >= least);
    if (bucket.is_posted_last) joined = 0;
  }
}

void Buckets::gradients_are_final(int64_t layer) {
  const auto known = is_final_.find(layer);
  if (!follows_stage_ || sharding().gradients()) return;
  if (known == is_final_.end() || std::exchange(known->second, true)) return;
  const auto is_whole = [](const Bucket& bucket) { return bucket.num_final == static_cast<int>(bucket.layers.size()); };
  for (const size_t number : buckets_of_layer_.at(layer)) {
    ++buckets_[number].num_final;
    if (is_whole(buckets_[number])) finals_.push_back(number);
  }
  while (ready_ < buckets_.size() && is_whole(in_order(ready_))) sum_partial(in_order(ready_++));
  post_reductions();
}

// Those that were not final in time come last, as they did.
void Buckets::learn_order() {
  if (has_learnt_ || finals_.empty()) return;
  has_learnt_ = true;
  const std::vector<size_t> before = std::exchange(order_, finals_);
  std::ranges::copy_if(before, std::back_inserter(order_),
                       [&](size_t number) { return std::ranges::find(finals_, number) == finals_.end(); });
  join_units();
}

// All in one message, as Megatron's _allreduce_layernorm_grads: most of them are small.
void Buckets::sum_partial(const Bucket& bucket) {
  if (bucket.partial_elems == 0) return;
  const core::Tensor all(state_.ops.arena, core::DType::kFp32, {bucket.partial_elems}, core::MemoryTag::kComm);
  const auto for_each_part = [&](const auto& body) {
    int64_t begin = 0;
    for (const Parameter* parameter : bucket.partial) {
      body(all.view().rows(begin, begin + parameter->size()).elements<float>(), parameter->main_grad.elements<float>());
      begin += parameter->size();
    }
  };
  for_each_part([](std::span<float> part, std::span<float> gradient) { std::ranges::copy(gradient, part.begin()); });
  state_.groups.tp.allreduce(all.view());
  for_each_part([](std::span<float> part, std::span<float> gradient) { std::ranges::copy(part, gradient.begin()); });
}

core::TensorView Buckets::reduced(const Bucket& bucket) const {
  const core::TensorView& wide = bucket.gradients;
  if (!state_.config.parallel.grad_reduce_in_bf16) return wide;
  return {wide.bytes(), core::DType::kBf16, {wide.size()}};
}

core::TensorView Buckets::owned_reduced(const Bucket& bucket) const {
  return reduced(bucket).rows(bucket.owned.begin - bucket.range.begin, bucket.owned.end - bucket.range.begin);
}

// The narrow numbers are written where wide ones have been read before: of each doubling range at once, since it does
// not overlap its place.
core::TensorView Buckets::narrow(const Bucket& bucket) const {
  const core::TensorView& wide = bucket.gradients;
  const core::TensorView narrowed = reduced(bucket);
  if (!state_.config.parallel.grad_reduce_in_bf16) return narrowed;
  for (int64_t begin = 0, end = 1; begin < wide.size(); begin = end, end = std::min(2 * end, wide.size())) {
    if (begin > 0) {
      ops::cast_into(state_.ops, wide.rows(begin, end), narrowed.rows(begin, end));
    } else {
      narrowed.data<kernels::bf16>()[0] = kernels::bf16(wide.data<float>()[0]);
    }
  }
  return narrowed;
}

void Buckets::widen(const Bucket& bucket) {
  if (!state_.config.parallel.grad_reduce_in_bf16) return;
  const core::TensorView& wide = bucket.gradients;
  const core::TensorView narrowed = reduced(bucket);
  const int64_t first = bucket.owned.begin - bucket.range.begin, last = bucket.owned.end - bucket.range.begin;
  for (int64_t end = last; end > first;) {
    const int64_t begin = std::max(first, (end + 1) / 2);
    if (begin == end) {
      wide.data<float>()[0] = kernels::to_float(narrowed.data<kernels::bf16>()[0]);  // end is 1
      break;
    }
    ops::cast_into(state_.ops, narrowed.rows(begin, end), wide.rows(begin, end));
    end = begin;
  }
}

void Buckets::post_reduction(Bucket& bucket) {
  const core::TensorView gradients = narrow(bucket);
  if (is_divided(bucket)) {
    bucket.reduction = owners_of(bucket).ireduce_scatterv(gradients, bucket.counts, owned_reduced(bucket), op_);
  } else if (!sharding().state() || unit_of(bucket).whole) {
    bucket.reduction = replicas_of(bucket).iallreduce(gradients, op_);
  }  // else this rank owns it alone, in its instance
}

// Buckets in their order, so that all instances post the same sums in the same order, however long their reductions
// take.
void Buckets::post_sums_of_instances(bool waits) {
  if (!has_instances()) return;
  for (; summed_ < posted_; ++summed_) {
    Bucket& bucket = in_order(summed_);
    if (!is_exchanged(bucket) || unit_of(bucket).whole) continue;
    if (!waits && !bucket.reduction.test()) return;
    bucket.reduction.wait();  // gives back its scratch
    bucket.sum_of_instances = parameters_.instances(unit_of(bucket)).iallreduce(owned_reduced(bucket), op_);
    if (!follows_stage_) bucket.sum_of_instances.wait();
  }
}

void Buckets::post_reductions() {
  size_t end = ready_;
  while (end > posted_ && !in_order(end - 1).is_posted_last) --end;
  for (; posted_ < end; ++posted_) {
    Bucket& bucket = in_order(posted_);
    if (!is_exchanged(bucket)) continue;
    post_reduction(bucket);
    if (!follows_stage_) bucket.reduction.wait();  // there is nothing to hide: one scratch does
  }
  post_sums_of_instances(/*waits=*/false);
}

std::span<Bucket* const> Buckets::divided_of(int64_t unit) const {
  const auto found = divided_of_unit_.find(unit);
  return found == divided_of_unit_.end() ? std::span<Bucket* const>() : std::span<Bucket* const>(found->second);
}

core::TensorView Buckets::free_slot(const std::vector<core::Tensor>& slots, core::TensorView Bucket::*of_bucket) const {
  for (const core::Tensor& slot : slots) {
    const auto is_in_slot = [&](const Bucket& bucket) {
      const std::byte* const begin = (bucket.*of_bucket).bytes();
      return begin >= slot.bytes() && begin < slot.bytes() + slot.size_bytes();
    };
    if (std::ranges::none_of(buckets_, is_in_slot)) return slot;
  }
  return {};
}

void Buckets::take_slot(std::span<Bucket* const> buckets, const core::TensorView& slot,
                        core::TensorView Bucket::*of_bucket) {
  int64_t begin = 0;
  for (Bucket* const bucket : buckets) {
    const int64_t end = begin + bucket->range.end - bucket->range.begin;
    bucket->*of_bucket = slot.rows(begin, end);
    begin = end;
  }
}

void Buckets::acquire_gradients(int64_t unit) {
  const std::span<Bucket* const> buckets = divided_of(unit);
  const bool is_reducing = buckets.data() == reducing_.data();
  if (buckets.empty() || (buckets.front()->gradients.defined() && !is_reducing)) return;
  const auto slot_for_it = [&] { return free_slot(gradient_slots_, &Bucket::gradients); };
  if (is_reducing || !slot_for_it().defined()) finish_reduction_under_way();
  const core::TensorView slot = slot_for_it();
  MS_CHECK(slot.defined(), "gradients of unit ", unit, " while those of two others are being added up");
  take_slot(buckets, slot, &Bucket::gradients);
  for (Bucket* const bucket : buckets) {
    ops::fill_zero(state_.ops, bucket->gradients);
    parameters_.place_grads(bucket->unit, bucket->gradients.bytes());
  }
}

void Buckets::gradients_are_added(int64_t unit) {
  const std::span<Bucket* const> buckets = divided_of(unit);
  if (buckets.empty() || !buckets.front()->gradients.defined() || buckets.data() == reducing_.data()) return;
  finish_reduction_under_way();
  for (Bucket* const bucket : buckets) {
    sum_partial(*bucket);
    post_reduction(*bucket);
  }
  reducing_ = buckets;
}

void Buckets::finish_reduction_under_way() {
  for (Bucket* const bucket : std::exchange(reducing_, {})) {
    bucket->reduction.wait();
    widen(*bucket);
    const int64_t first = bucket->owned.begin - bucket->range.begin, last = bucket->owned.end - bucket->range.begin;
    ops::accumulate_fp32(state_.ops, parameters_.owned_grads(bucket->owned), bucket->gradients.rows(first, last));
    bucket->gradients = {};
    parameters_.place_grads(bucket->unit, nullptr);
  }
}

void Buckets::finish_what_stays() {
  for (Bucket& bucket : buckets_) {
    if (is_divided(bucket)) {
      MS_CHECK(!bucket.gradients.defined(), "gradients of unit ", bucket.layers.front(), " have not been reduced");
      continue;
    }
    sum_partial(bucket);
    if (!is_exchanged(bucket) || !unit_of(bucket).whole) continue;
    post_reduction(bucket);
    bucket.reduction.wait();
    widen(bucket);
  }
}

void Buckets::sum_over_instances() {
  if (!sharding().gradients() || !has_instances()) return;
  for (const layout::Group replicas : {layout::Group::kDpCp, layout::Group::kExpertDp}) {
    const layout::FlatRange owned = parameters_.cut().owned_by_instances(replicas);
    if (owned.begin == owned.end) continue;
    const core::TensorView gradients = part_of(parameters_.grads(), owned);
    core::Communicator& instances = instances_of(replicas);
    if (sharding().parts_of_state() == 1) {
      instances.allreduce(gradients, op_);
    } else {
      instances.ireduce_scatter(gradients, block_of(gradients, instances), op_).wait();
    }
  }
}

void Buckets::gather_over_instances() {
  for (const layout::Group replicas : {layout::Group::kDpCp, layout::Group::kExpertDp}) {
    const layout::FlatRange owned = parameters_.cut().owned_by_instances(replicas);
    if (owned.begin == owned.end) continue;
    const core::TensorView weights = part_of(parameters_.weights(), owned);
    instances_of(replicas).allgather(block_of(weights, instances_of(replicas)), weights);
  }
}

void Buckets::finish_reduction() {
  if (sharding().gradients()) {
    finish_reduction_under_way();
    return finish_what_stays();
  }
  while (ready_ < buckets_.size()) sum_partial(in_order(ready_++));
  post_reductions();
  post_sums_of_instances(/*waits=*/true);
  for (Bucket& bucket : buckets_) {
    bucket.reduction.wait();
    bucket.sum_of_instances.wait();
    if (is_exchanged(bucket)) widen(bucket);
    bucket.num_final = 0;
  }
  ready_ = posted_ = summed_ = 0;
  learn_order();
  finals_.clear();
  for (auto& [layer, is_final] : is_final_) is_final = false;
}

void Buckets::gather_at_once() {
  const core::TensorView weights = parameters_.weights();
  const layout::BufferCut& cut = parameters_.cut();
  for (const layout::BufferCut::Unit& unit : cut.units()) {
    core::Communicator& owners = parameters_.owners(unit);
    if (unit.range.begin == unit.range.end || cut.num_owners(unit) == 1) continue;
    owners.allgather(part_of(weights, cut.owned_block(unit, owners.rank())), part_of(weights, unit.range));
  }
}

void Buckets::gather_weights() {
  if (sharding().parts_of_state() > 1) gather_over_instances();
  if (!sharding().state() || sharding().weights()) return;
  const bool overlaps = follows_stage_ && state_.config.parallel.overlap_param_gather;
  if (!overlaps && !sharding().gradients()) return gather_at_once();
  for (Bucket& bucket : in_order_of_forward()) gather_weights(bucket);
  if (!overlaps) await_all_weights();
}

bool Buckets::gathers_while_updating() const {
  return follows_stage_ && sharding().state() && !sharding().weights() &&
         state_.config.parallel.overlap_param_gather_with_optimizer_step;
}

void Buckets::gather_weights(Bucket& bucket) {
  gathers_ = buckets_.size();
  if (!is_divided(bucket)) return;
  const core::TensorView weights = parameters_.weights();
  bucket.gather =
      owners_of(bucket).iallgatherv(part_of(weights, bucket.owned), bucket.counts, part_of(weights, bucket.range));
}

void Buckets::acquire_weights(int64_t unit, int64_t next) {
  if (!sharding().weights()) return await_gathers(unit);
  const auto slot = [&] { return free_slot(weight_slots_, &Bucket::weights); };
  const std::span<Bucket*const> buckets = divided_of(unit), ahead = divided_of(next);
  if (!buckets.empty() && !buckets.front()->are_read) {
    if (!buckets.front()->weights.defined()) start_gather(buckets, slot());
    for (Bucket* const bucket : buckets) {
      bucket->gather.wait();
      bucket->are_read = true;
      parameters_.place_weights(bucket->unit, bucket->weights.bytes());
    }
  }
  if (!ahead.empty() && !ahead.front()->weights.defined() && slot().defined()) start_gather(ahead, slot());
}

void Buckets::start_gather(std::span<Bucket* const> buckets, const core::TensorView& slot) {
  MS_CHECK(slot.defined(), "weights of unit ", buckets.front()->layers.front(),
           " while those of two others are being read");
  take_slot(buckets, slot, &Bucket::weights);
  for (Bucket* const bucket : buckets) {
    bucket->gather =
        owners_of(*bucket).iallgatherv(parameters_.owned_weights(bucket->owned), bucket->counts, bucket->weights);
  }
}

void Buckets::release_weights(int64_t unit) {
  if (!sharding().weights()) return;
  for (Bucket* const bucket : divided_of(unit)) {
    if (!std::exchange(bucket->are_read, false)) continue;
    bucket->weights = {};
    parameters_.place_weights(bucket->unit, nullptr);
  }
}

void Buckets::await_gathers(int64_t unit) {
  if (gathers_ == 0) return;
  const auto found = buckets_of_layer_.find(unit);
  if (found == buckets_of_layer_.end()) return;  // nothing of it trains
  for (const size_t number : found->second) buckets_[number].gather.wait();
}

void Buckets::await_all_weights() {
  if (std::exchange(gathers_, 0) == 0) return;
  for (Bucket& bucket : buckets_) bucket.gather.wait();
}

}  // namespace ms::train
