// The shards of a checkpoint in compact form: 20 bytes per shard of two axes, and each name once.
//
// Replaces a vector of core::ShardedTensor for checkpoints with millions of boxes. A shard is stored as its tensor's
// index, with offset and extent in 32 bits each (64 for the whole table once a number needs them). operator[] and
// iteration return core::ShardedTensor values; the planner uses the columns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sharded_tensor.h"

namespace ms::ckpt {

class ShardTable {
 public:
  ShardTable() = default;
  ShardTable(std::span<const core::ShardedTensor> shards);     // push_back of each; implicit
  ShardTable(const std::vector<core::ShardedTensor>& shards);  // implicit
  ShardTable(std::initializer_list<core::ShardedTensor> shards);

  void reserve(size_t shards);
  // Returns the tensor's index; adds it if the table has none of this name and role. dtype is then that of its shards.
  // Throws kCorruptData if the shape differs from that of an earlier call or has more than kMaxAxes axes.
  int32_t add_tensor(std::string_view key, core::TensorRole role, core::DType dtype,
                     std::span<const int64_t> global_shape);
  // Appends a shard. offset and extent have as many axes as the tensor and may exceed it (check_coverage reports that).
  // Throws kCorruptData for a negative number or another number of axes.
  void add_shard(int32_t tensor, std::span<const int64_t> offset, std::span<const int64_t> extent, int replica_id = 0);
  // A shard may have another dtype than its tensor: foreign files contain such shards.
  void push_back(const core::ShardedTensor& shard);

  size_t size() const { return tensor_.size(); }
  bool empty() const { return tensor_.empty(); }
  core::ShardedTensor operator[](size_t shard) const;

  int32_t tensor_of(size_t shard) const { return tensor_[shard]; }
  core::DType dtype_of(size_t shard) const { return dtypes_.empty() ? dtype(tensor_[shard]) : dtypes_[shard]; }
  int replica_id(size_t shard) const { return replicas_.empty() ? 0 : replicas_[shard]; }
  int64_t offset(size_t shard, size_t axis) const { return dim(shard, 2 * axis); }
  int64_t extent(size_t shard, size_t axis) const { return dim(shard, 2 * axis + 1); }
  int64_t elements(size_t shard) const;  // product of the extents; 1 for a scalar
  int64_t size_bytes(size_t shard) const { return elements(shard) * core::size_of(dtype_of(shard)); }
  core::Dims offsets(size_t shard) const;
  core::Dims extents(size_t shard) const;

  size_t num_tensors() const { return tensors_.size(); }
  std::optional<int32_t> find(std::string_view key, core::TensorRole role) const;
  // The tensors of this name, by role; -1: none.
  std::array<int32_t, core::kNumTensorRoles> find_roles(std::string_view key) const;
  std::string_view key(int32_t tensor) const { return name(at(tensor).name); }
  core::TensorRole role(int32_t tensor) const { return at(tensor).role; }
  core::DType dtype(int32_t tensor) const { return at(tensor).dtype; }
  size_t axes(int32_t tensor) const { return at(tensor).axes; }
  std::span<const int64_t> global_shape(int32_t tensor) const {
    return {shapes_.data() + at(tensor).shape, at(tensor).axes};
  }
  int64_t tensor_bytes(int32_t tensor) const;

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = core::ShardedTensor;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = core::ShardedTensor;
    Iterator(const ShardTable& table, size_t at) : table_(&table), at_(at) {}
    core::ShardedTensor operator*() const { return (*table_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return {*table_, at_++}; }
    bool operator==(const Iterator&) const = default;

   private:
    const ShardTable* table_;
    size_t at_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  struct Tensor {
    uint32_t name = 0;   // index into names_
    uint32_t shape = 0;  // index of the first axis in shapes_
    core::TensorRole role = core::TensorRole::kParam;
    core::DType dtype = core::DType::kFp32;
    uint8_t axes = 0;
  };
  const Tensor& at(int32_t tensor) const { return tensors_[static_cast<size_t>(tensor)]; }
  std::string_view name(uint32_t index) const {
    return std::string_view(text_).substr(names_[index], names_[index + 1] - names_[index]);
  }
  int64_t dim(size_t shard, size_t place) const {
    const size_t i = shard * stride_ + place;
    return wide_ ? static_cast<int64_t>(wide_dims_[i]) : static_cast<int64_t>(dims_[i]);
  }
  std::optional<uint32_t> find_name(std::string_view key) const;
  uint32_t add_name(std::string_view key);
  void widen(size_t stride, bool wide);

  std::string text_;                 // all names, concatenated
  std::vector<size_t> names_ = {0};  // begin of each name in text_, and the end of the last
  std::vector<uint32_t> slots_;      // open addressing: name index + 1, 0: free; the size is a power of two
  std::vector<std::array<int32_t, core::kNumTensorRoles>> tensor_of_name_;  // by role; -1: none
  std::vector<Tensor> tensors_;
  std::vector<int64_t> shapes_;
  std::vector<int32_t> tensor_;      // per shard
  std::vector<int32_t> replicas_;    // per shard; empty while all are 0
  std::vector<core::DType> dtypes_;  // per shard; empty while all equal their tensors'
  size_t stride_ = 0;                // numbers per shard: offset and extent for the largest number of axes
  bool wide_ = false;
  std::vector<uint32_t> dims_;
  std::vector<uint64_t> wide_dims_;
};

}  // namespace ms::ckpt
