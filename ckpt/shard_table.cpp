#include "ckpt/shard_table.h"

#include <algorithm>

#include "core/error.h"
#include "core/layout/box.h"
#include "kernels/checksum.h"

namespace ms::ckpt {

using core::cat;
using core::Error;
using core::ErrorCode;

namespace {

// The slot of a name in an open-addressing table, or the free slot for it.
template <class Equal>
size_t slot_of(const std::vector<uint32_t>& slots, std::string_view key, const Equal& equal) {
  const size_t mask = slots.size() - 1;
  size_t slot = kernels::xxh3(key.data(), key.size()) & mask;
  while (slots[slot] != 0 && !equal(slots[slot] - 1)) slot = (slot + 1) & mask;
  return slot;
}

}  // namespace

ShardTable::ShardTable(std::span<const core::ShardedTensor> shards) {
  for (const core::ShardedTensor& shard : shards) push_back(shard);
}

ShardTable::ShardTable(const std::vector<core::ShardedTensor>& shards)
    : ShardTable(std::span<const core::ShardedTensor>(shards)) {}

ShardTable::ShardTable(std::initializer_list<core::ShardedTensor> shards)
    : ShardTable(std::span<const core::ShardedTensor>(shards.begin(), shards.size())) {}

void ShardTable::reserve(size_t shards) {
  tensor_.reserve(shards);
  if (wide_) {
    wide_dims_.reserve(shards * stride_);
  } else {
    dims_.reserve(shards * std::max<size_t>(stride_, 4));
  }
}

std::optional<uint32_t> ShardTable::find_name(std::string_view key) const {
  if (slots_.empty()) return std::nullopt;
  const uint32_t found = slots_[slot_of(slots_, key, [&](uint32_t index) { return name(index) == key; })];
  return found == 0 ? std::nullopt : std::optional(found - 1);
}

uint32_t ShardTable::add_name(std::string_view key) {
  const auto index = static_cast<uint32_t>(names_.size() - 1);
  text_ += key;
  names_.push_back(text_.size());
  tensor_of_name_.emplace_back().fill(-1);
  if (2 * names_.size() > slots_.size()) {
    slots_.assign(std::max<size_t>(16, 2 * slots_.size()), 0);
    for (uint32_t i = 0; i < index; ++i) slots_[slot_of(slots_, name(i), [](uint32_t) { return false; })] = i + 1;
  }
  slots_[slot_of(slots_, key, [](uint32_t) { return false; })] = index + 1;
  return index;
}

int32_t ShardTable::add_tensor(std::string_view key, core::TensorRole role, core::DType dtype,
                               std::span<const int64_t> global_shape) {
  const auto found = find_name(key);
  const uint32_t name = found ? *found : add_name(key);
  int32_t& tensor = tensor_of_name_[name][static_cast<size_t>(role)];
  if (tensor >= 0) {
    const auto known = this->global_shape(tensor);
    if (!std::equal(known.begin(), known.end(), global_shape.begin(), global_shape.end())) {
      throw Error(ErrorCode::kCorruptData, cat(key, ": global shapes ", known, " and ", global_shape, " differ"));
    }
    return tensor;
  }
  if (global_shape.size() > layout::kMaxAxes) {
    throw Error(ErrorCode::kCorruptData,
                cat(key, ": ", global_shape.size(), " axes; a tensor has at most ", layout::kMaxAxes));
  }
  tensor = static_cast<int32_t>(tensors_.size());
  tensors_.push_back(
      {name, static_cast<uint32_t>(shapes_.size()), role, dtype, static_cast<uint8_t>(global_shape.size())});
  shapes_.insert(shapes_.end(), global_shape.begin(), global_shape.end());
  return tensor;
}

// Rewrites the shards' numbers with another stride or with 64 bits instead of 32.
void ShardTable::widen(size_t stride, bool wide) {
  std::vector<uint32_t> narrow_dims;
  std::vector<uint64_t> wide_dims;
  if (wide) {
    wide_dims.resize(size() * stride);
  } else {
    narrow_dims.reserve(std::max(dims_.capacity(), size() * stride));
    narrow_dims.resize(size() * stride);
  }
  for (size_t shard = 0; shard < size(); ++shard) {
    for (size_t place = 0; place < stride_; ++place) {
      const int64_t value = dim(shard, place);
      if (wide) {
        wide_dims[shard * stride + place] = static_cast<uint64_t>(value);
      } else {
        narrow_dims[shard * stride + place] = static_cast<uint32_t>(value);
      }
    }
  }
  dims_ = std::move(narrow_dims);
  wide_dims_ = std::move(wide_dims);
  stride_ = stride;
  wide_ = wide;
}

void ShardTable::add_shard(int32_t tensor, std::span<const int64_t> offset, std::span<const int64_t> extent,
                           int replica_id) {
  const size_t axes = at(tensor).axes;
  int64_t largest = 0;
  bool good = offset.size() == axes && extent.size() == axes;
  for (size_t axis = 0; good && axis < axes; ++axis) {
    good = offset[axis] >= 0 && extent[axis] >= 0;
    largest = std::max({largest, offset[axis], extent[axis]});
  }
  if (!good) {
    throw Error(ErrorCode::kCorruptData, cat(key(tensor), ": box at ", offset, " of extent ", extent,
                                             " does not match a tensor of ", axes, " axes"));
  }
  if (2 * axes > stride_ || (largest > int64_t{UINT32_MAX} && !wide_)) {
    widen(std::max(2 * axes, stride_), wide_ || largest > int64_t{UINT32_MAX});
  }
  tensor_.push_back(tensor);
  const auto append = [&](auto& dims) {
    using Number = typename std::decay_t<decltype(dims)>::value_type;
    for (size_t axis = 0; axis < axes; ++axis) {
      dims.push_back(static_cast<Number>(offset[axis]));
      dims.push_back(static_cast<Number>(extent[axis]));
    }
    for (size_t place = 2 * axes; place < stride_; ++place) dims.push_back(0);
  };
  if (wide_) {
    append(wide_dims_);
  } else {
    append(dims_);
  }
  if (replica_id != 0 && replicas_.empty()) replicas_.resize(size() - 1, 0);
  if (replica_id != 0 || !replicas_.empty()) replicas_.push_back(replica_id);
  if (!dtypes_.empty()) dtypes_.push_back(dtype(tensor));
}

void ShardTable::push_back(const core::ShardedTensor& shard) {
  const int32_t tensor = add_tensor(shard.key, shard.role, shard.dtype, shard.global_shape);
  add_shard(tensor, shard.global_offset, shard.local_shape, shard.replica_id);
  if (shard.dtype == dtype_of(size() - 1)) return;
  if (dtypes_.empty()) {
    for (const int32_t of : tensor_) dtypes_.push_back(dtype(of));
  }
  dtypes_.back() = shard.dtype;
}

core::ShardedTensor ShardTable::operator[](size_t shard) const {
  const int32_t tensor = tensor_of(shard);
  const auto shape = global_shape(tensor);
  return {std::string(key(tensor)), role(tensor),   dtype_of(shard),  {shape.begin(), shape.end()},
          offsets(shard),           extents(shard), replica_id(shard)};
}

core::Dims ShardTable::offsets(size_t shard) const {
  core::Dims dims(at(tensor_of(shard)).axes);
  for (size_t axis = 0; axis < dims.size(); ++axis) dims[axis] = offset(shard, axis);
  return dims;
}

core::Dims ShardTable::extents(size_t shard) const {
  core::Dims dims(at(tensor_of(shard)).axes);
  for (size_t axis = 0; axis < dims.size(); ++axis) dims[axis] = extent(shard, axis);
  return dims;
}

int64_t ShardTable::elements(size_t shard) const {
  int64_t product = 1;
  for (size_t axis = 0; axis < at(tensor_of(shard)).axes; ++axis) product *= extent(shard, axis);
  return product;
}

int64_t ShardTable::tensor_bytes(int32_t tensor) const {
  int64_t product = core::size_of(dtype(tensor));
  for (const int64_t size : global_shape(tensor)) product *= size;
  return product;
}

std::array<int32_t, core::kNumTensorRoles> ShardTable::find_roles(std::string_view key) const {
  if (const auto name = find_name(key)) return tensor_of_name_[*name];
  std::array<int32_t, core::kNumTensorRoles> none;
  none.fill(-1);
  return none;
}

std::optional<int32_t> ShardTable::find(std::string_view key, core::TensorRole role) const {
  const int32_t tensor = find_roles(key)[static_cast<size_t>(role)];
  return tensor < 0 ? std::nullopt : std::optional(tensor);
}

}  // namespace ms::ckpt
