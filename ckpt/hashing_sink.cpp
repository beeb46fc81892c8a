#include "ckpt/hashing_sink.h"

namespace ms::ckpt {

void HashingSink::begin(const CheckpointInfo& info, const ShardTable& targets) {
  sink_.begin(info, targets);
  targets_ = &targets;
  states_ = std::vector<State>(targets.num_tensors());
  for (size_t t = 0; t < states_.size(); ++t) {
    const auto shape = targets.global_shape(static_cast<int32_t>(t));
    states_[t].missing = core::num_elements({shape.begin(), shape.end()});
  }
  std::vector<int64_t> written(states_.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets.replica_id(i) == 0) written[static_cast<size_t>(targets.tensor_of(i))] += targets.elements(i);
  }
  for (size_t t = 0; t < states_.size(); ++t) states_[t].hashed = written[t] == states_[t].missing;  // not twice
}

std::optional<LogicalPartial> HashingSink::partial_of(int32_t target, int64_t first, int64_t count,
                                                      const std::byte* data) const {
  const auto index = static_cast<size_t>(target);
  if (targets_->replica_id(index) != 0 || targets_->dtype_of(index) != targets_->dtype(targets_->tensor_of(index))) {
    return std::nullopt;
  }
  LogicalPartial partial;
  add_logical((*targets_)[index], first, count, data, partial);
  return partial;
}

void HashingSink::write(int32_t target, int64_t first, int64_t count, const std::byte* data) {
  const auto partial = partial_of(target, first, count, data);
  sink_.write(target, first, count, data);
  if (partial) add(target, count, *partial);
}

bool HashingSink::keep(int32_t target, int64_t first, int64_t count, std::byte* scratch) {
  if (!sink_.keep(target, first, count, scratch)) return false;
  if (const auto partial = partial_of(target, first, count, scratch)) add(target, count, *partial);
  return true;
}

void HashingSink::add(int32_t target, int64_t count, const LogicalPartial& partial) {
  const int32_t tensor = targets_->tensor_of(static_cast<size_t>(target));
  State& state = states_[static_cast<size_t>(tensor)];
  std::lock_guard lock(mutex_);
  state.missing -= count;
  if (!state.hashed) return;
  cut_bytes_ += static_cast<int64_t>(partial.bytes.size());
  state.partial.merge(partial);
  if (state.missing == 0 || cut_bytes_ > max_cut_bytes_) {
    cut_bytes_ -= static_cast<int64_t>(state.partial.bytes.size());
    if (state.missing == 0) {
      const auto shape = targets_->global_shape(tensor);
      state.hash = finish_logical(targets_->dtype(tensor), {shape.begin(), shape.end()}, state.partial);
    }
    state.hashed = false;
    state.partial = {};
  }
}

std::vector<WrittenTensor> HashingSink::tensors() const {
  std::lock_guard lock(mutex_);
  std::vector<WrittenTensor> tensors;
  for (size_t t = 0; t < states_.size(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const auto shape = targets_->global_shape(tensor);
    tensors.push_back({std::string(targets_->key(tensor)),
                       targets_->role(tensor),
                       targets_->dtype(tensor),
                       {shape.begin(), shape.end()},
                       states_[t].hash});
  }
  return tensors;
}

}  // namespace ms::ckpt
