#include "train/optim/bucket.h"

#include <algorithm>
#include <functional>
#include <ranges>
#include <utility>

#include "core/error.h"
#include "core/tensor.h"
#include "kernels/bf16.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

// The part of `range` that is in `other`; if it is empty, still a place in `range`.
layout::FlatRange overlap_of(layout::FlatRange range, layout::FlatRange other) {
  const int64_t begin = std::clamp(other.begin, range.begin, range.end);
  return {begin, std::clamp(other.end, begin, range.end)};
}

core::TensorView part_of(const core::TensorView& buffer, layout::FlatRange range) {
  return buffer.rows(range.begin, range.end);
}

std::vector<layout::FlatRange> ranges_of(const RankState& state, const ParameterStore& parameters, size_t section) {
  const layout::BufferSection& of = parameters.sections()[section];
  std::vector<int64_t> starts;
  int64_t elements = 0;
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.section != section) continue;
    starts.push_back(parameter.offset_elems - of.range.begin);
    elements += parameter.size();
  }
  if (section > 0 && starts.empty()) return {};
  return layout::buckets_of_section(bucket_settings(state.config.parallel), of, starts, elements);
}

// The first layer that has parameters in a bucket: the last one whose gradients become final.
int64_t first_layer(const Bucket& bucket) {
  return bucket.layers.empty() ? -1 : *std::ranges::min_element(bucket.layers);
}

}  // namespace

Buckets::Buckets(RankState& state, ParameterStore& parameters)
    : state_(state),
      parameters_(parameters),
      distributed_(state.config.parallel.use_distributed_optimizer),
      owned_(parameters, distributed_) {
  for (size_t section = 0; section < layout::kNumTrainedSections; ++section) {
    for (const layout::FlatRange& range : ranges_of(state, parameters, section)) {
      Bucket& bucket = buckets_.emplace_back();
      bucket.section = section;
      bucket.range = range;
      bucket.counts = layout::owned_counts(range, parameters.sections()[section]);
      bucket.owned = overlap_of(range, owned_.of_section(section));
    }
  }
  describe_parameters();
  std::ranges::stable_sort(buckets_, std::ranges::greater(), first_layer);
  for (size_t number = 0; number < buckets_.size(); ++number) {
    for (const int64_t layer : buckets_[number].layers) {
      buckets_of_layer_[layer].push_back(number);
      is_final_[layer] = false;
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
    if (parameter.grad_is_partial) {
      found->partial.push_back(&parameter);
      found->partial_elems += parameter.size();
    }
    if (found->layers.empty() || found->layers.back() != parameter.spec.layer)
      found->layers.push_back(parameter.spec.layer);
  }
}

void Buckets::gradients_are_final(int64_t layer) {
  const auto known = is_final_.find(layer);
  if (!follows_stage_ || known == is_final_.end() || std::exchange(known->second, true)) return;
  for (const size_t number : buckets_of_layer_.at(layer)) ++buckets_[number].num_final;
  while (ready_ < buckets_.size() && buckets_[ready_].num_final == static_cast<int>(buckets_[ready_].layers.size())) {
    sum_partial(buckets_[ready_++]);
  }
  post_reductions();
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

// The narrow numbers are written where wide ones have been read before: of each doubling range at once, since it does
// not overlap its place.
core::TensorView Buckets::narrow(const Bucket& bucket) {
  const core::TensorView wide = part_of(parameters_.grads(), bucket.range);
  if (!state_.config.parallel.grad_reduce_in_bf16) return wide;
  const core::TensorView narrowed(wide.bytes(), core::DType::kBf16, {wide.size()});
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
  const core::TensorView wide = part_of(parameters_.grads(), bucket.range);
  const core::TensorView narrowed(wide.bytes(), core::DType::kBf16, {wide.size()});
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

void Buckets::post_reductions() {
  for (; posted_ < ready_; ++posted_) {
    Bucket& bucket = buckets_[posted_];
    if (!is_exchanged(bucket)) continue;
    const core::TensorView gradients = narrow(bucket);
    const int64_t first = bucket.owned.begin - bucket.range.begin, last = bucket.owned.end - bucket.range.begin;
    core::Communicator& replicas = replicas_of(bucket);
    bucket.reduction = distributed_ ? replicas.ireduce_scatterv(gradients, bucket.counts, gradients.rows(first, last))
                                    : replicas.iallreduce(gradients);
  }
}

void Buckets::finish_reduction() {
  while (ready_ < buckets_.size()) sum_partial(buckets_[ready_++]);
  post_reductions();
  for (Bucket& bucket : buckets_) {
    bucket.reduction.wait();
    if (is_exchanged(bucket)) widen(bucket);
    bucket.num_final = 0;
  }
  ready_ = posted_ = 0;
  for (auto& [layer, is_final] : is_final_) is_final = false;
}

void Buckets::gather_at_once() {
  const core::TensorView weights = parameters_.weights();
  for (size_t section = 0; section < layout::kNumTrainedSections; ++section) {
    const layout::FlatRange all = parameters_.sections()[section].range;
    core::Communicator& replicas = parameters_.replicas(section);
    if (all.begin == all.end || replicas.size() == 1) continue;
    replicas.allgather(part_of(weights, owned_.of_section(section)), part_of(weights, all));
  }
}

void Buckets::gather_weights() {
  if (!distributed_) return;
  if (!follows_stage_ || !state_.config.parallel.overlap_param_gather) return gather_at_once();
  const core::TensorView weights = parameters_.weights();
  for (Bucket& bucket : std::views::reverse(buckets_)) {  // in the order of the next forward
    if (!is_exchanged(bucket)) continue;
    bucket.gather =
        replicas_of(bucket).iallgatherv(part_of(weights, bucket.owned), bucket.counts, part_of(weights, bucket.range));
  }
  gathers_ = buckets_.size();
}

void Buckets::await_weights(int64_t layer) {
  if (gathers_ == 0) return;
  const auto found = buckets_of_layer_.find(layer);
  if (found == buckets_of_layer_.end()) return;  // nothing of it trains
  for (const size_t number : found->second) buckets_[number].gather.wait();
}

void Buckets::await_all_weights() {
  if (std::exchange(gathers_, 0) == 0) return;
  for (Bucket& bucket : buckets_) bucket.gather.wait();
}

}  // namespace ms::train
