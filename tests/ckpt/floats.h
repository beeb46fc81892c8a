// A source with one tensor in memory, whose values the test chooses.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/copy_box.h"
#include "ckpt/source.h"

namespace ms::ckpt::test {

// A tensor of floats in memory, cut into two boxes of rows.
class Floats final : public Source {
 public:
  Floats(core::Dims shape, int64_t cut, std::vector<float> values)
      : shape_(std::move(shape)), values_(std::move(values)) {
    core::Dims zero(shape_.size(), 0), low(shape_), high(shape_), at(shape_.size(), 0);
    low[0] = at[0] = cut;
    high[0] -= cut;
    shards_.push_back({"x", core::TensorRole::kParam, core::DType::kFp32, shape_, zero, low});
    shards_.push_back({"x", core::TensorRole::kParam, core::DType::kFp32, shape_, at, high});
  }
  const CheckpointInfo& info() const override { return info_; }
  CheckpointInfo& change_info() { return info_; }
  const ShardTable& shards() const override { return shards_; }
  std::string describe(int32_t) const override { return "memory"; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    core::Dims from = shards_.offsets(static_cast<size_t>(shard));
    for (size_t axis = 0; axis < from.size(); ++axis) from[axis] += offset[axis];
    copy_box(reinterpret_cast<const std::byte*>(values_.data()), shape_, from, out, extent,
             core::Dims(extent.size(), 0), extent, 4);
  }

 private:
  core::Dims shape_;
  std::vector<float> values_;
  ShardTable shards_;
  CheckpointInfo info_;
};

inline std::vector<float> some_values(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(std::sin(static_cast<double>(i * i)));
  return values;
}

}  // namespace ms::ckpt::test
