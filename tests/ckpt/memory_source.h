// A source of fp32 tensors in memory, with editable CheckpointInfo.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ckpt/copy_box.h"
#include "ckpt/source.h"

namespace ms::ckpt::test {

class MemorySource final : public Source {
 public:
  // Replaces the tensor if it exists.
  void set(const std::string& key, core::TensorRole role, core::Dims shape, std::vector<float> values) {
    if (const auto found = shards_.find(key, role)) {
      values_[static_cast<size_t>(*found)] = std::move(values);
      return;
    }
    shards_.push_back({key, role, core::DType::kFp32, shape, core::Dims(shape.size(), 0), shape});
    values_.push_back(std::move(values));
  }
  CheckpointInfo& state() { return info_; }

  const CheckpointInfo& info() const override { return info_; }
  const ShardTable& shards() const override { return shards_; }
  std::string describe(int32_t) const override { return "memory"; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const auto index = static_cast<size_t>(shard);
    copy_box(reinterpret_cast<const std::byte*>(values_.at(index).data()), shards_.extents(index), offset, out, extent,
             core::Dims(extent.size(), 0), extent, 4);
  }

 private:
  ShardTable shards_;
  std::vector<std::vector<float>> values_;  // of shards_
  CheckpointInfo info_;
};

}  // namespace ms::ckpt::test
