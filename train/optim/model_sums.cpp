#include "train/optim/model_sums.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "train/ops/optimizer.h"

namespace ms::train {
namespace {

template <class T>
double sum_of_squares(const core::TensorView& weights) {
  double sum = 0;
  const std::span elements(reinterpret_cast<const T*>(weights.bytes()), static_cast<size_t>(weights.size()));
  for (const T weight : elements) {
    const auto value = static_cast<double>(static_cast<float>(weight));
    sum += value * value;
  }
  return sum;
}

double sum_of_squares(const core::TensorView& weights) {
  switch (weights.dtype()) {
    case core::DType::kBf16:
      return sum_of_squares<kernels::bf16>(weights);
    case core::DType::kFp16:
      return sum_of_squares<kernels::fp16>(weights);
    default:
      return sum_of_squares<float>(weights);
  }
}

}  // namespace

ModelSums::ModelSums(RankState& state, const ParameterStore& parameters)
    : state_(state),
      parameters_(parameters),
      adds_replicas_(parameters.cut().sharding().state() ||
                     (state.config.model.has_experts() && !state.groups.experts.empty())),
      adds_instances_(parameters.cut().sharding().parts_of_state() > 1) {}

bool ModelSums::counts_replicated(const Parameter& parameter) const {
  if (!adds_replicas_) return true;
  const layout::BufferCut::Unit& unit = parameters_.unit_of(parameter);
  return (adds_instances_ ? parameters_.replicas(unit) : parameters_.owners(unit)).rank() == 0;
}

void ModelSums::for_each_counted(core::FunctionRef<void(const Parameter&, layout::FlatRange)> body) const {
  for (const Parameter& parameter : parameters_.all()) {
    const layout::FlatRange part = parameters_.state_part(parameter);
    const bool is_divided = parameters_.cut().sharding().state() && !parameters_.unit_of(parameter).whole;
    const bool counts = parameter.counts_in_norm && (is_divided || counts_replicated(parameter));
    if (counts && part.begin < part.end) body(parameter, part);
  }
}

double ModelSums::sum_over_model() {
  const bool sums_instance = state_.groups.dp_shard && !adds_instances_;
  core::Communicator& owners = sums_instance ? *state_.groups.dp_shard : state_.groups.dp_cp;
  if (adds_replicas_ && owners.size() > 1) owners.allreduce(sums_);
  if (state_.groups.model.size() > 1) state_.groups.model.allreduce(sums_);
  double sum = 0;
  for (double of_parameter : sums_) sum += of_parameter;
  return sum;
}

void ModelSums::add_squares(core::FunctionRef<std::span<const float>(layout::FlatRange)> values) {
  counted_.clear();
  for_each_counted([&](const Parameter&, layout::FlatRange part) { counted_.push_back(values(part)); });
  squares_.resize(counted_.size());
  ops::sums_of_squares(state_.ops, counted_, squares_);
  size_t next = 0;
  for_each_counted(
      [&](const Parameter& parameter, layout::FlatRange) { sums_[parameter.model_index] = squares_[next++]; });
}

double ModelSums::norm(core::FunctionRef<std::span<const float>(layout::FlatRange)> values) {
  clear_sums();
  add_squares(values);
  return std::sqrt(sum_over_model());
}

double ModelSums::zero_gradients() {
  constexpr int64_t kGrain = 1 << 14;
  clear_sums();
  for_each_counted([&](const Parameter& parameter, layout::FlatRange part) {
    const std::span<const float> grads = parameters_.owned_grads(part).elements<float>();
    std::atomic<int64_t> zeros{0};
    state_.ops.pool.parallel_for(part.end - part.begin, kGrain, [&](int64_t first, int64_t last) {
      const auto some = grads.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
      zeros += std::count(some.begin(), some.end(), 0.0F);
    });
    sums_[parameter.model_index] = static_cast<double>(zeros.load());
  });
  return sum_over_model();
}

// All replicas hold them; where their sums are added up, the first one counts them.
void ModelSums::add_frozen_squares() {
  for (const Parameter& parameter : parameters_.all()) {
    if (!parameter.trains() && parameter.counts_in_norm && counts_replicated(parameter))
      sums_[parameter.model_index] = sum_of_squares(parameter.weight);
  }
}

double ModelSums::params_norm(core::FunctionRef<std::span<const float>(layout::FlatRange)> values) {
  clear_sums();
  add_squares(values);
  add_frozen_squares();
  return std::sqrt(sum_over_model());
}

double ModelSums::weights_norm() {
  clear_sums();
  for_each_counted([&](const Parameter& parameter, layout::FlatRange part) {
    sums_[parameter.model_index] = sum_of_squares(parameters_.owned_weights(part));
  });
  add_frozen_squares();
  return std::sqrt(sum_over_model());
}

}  // namespace ms::train
