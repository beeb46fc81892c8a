// A checkpoint in memory that holds unsharded tensors, shards them for a layout, and can be tampered with.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/copy_box.h"
#include "ckpt/shard_list.h"
#include "ckpt/source.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"
#include "kernels/bf16.h"

namespace ms::ckpt::test {

struct WholeTensor {
  core::DType dtype = core::DType::kFp32;
  core::Dims shape;
  std::vector<std::byte> bytes;

  int64_t columns() const { return core::num_elements(shape) / shape[0]; }
  std::byte* row(int64_t index) { return bytes.data() + index * columns() * core::size_of(dtype); }
  int64_t row_bytes() const { return columns() * core::size_of(dtype); }
};

using WholeTensors = std::map<std::pair<std::string, core::TensorRole>, WholeTensor>;

class WholeSource final : public Source {
 public:
  // shards: of all tensors; those of missing tensors are ignored.
  WholeSource(WholeTensors tensors, const ShardTable& shards, CheckpointInfo info)
      : tensors_(std::move(tensors)), info_(std::move(info)) {
    for (const core::ShardedTensor& shard : shards) {
      const auto found = tensors_.find({shard.key, shard.role});
      if (found == tensors_.end()) continue;
      core::ShardedTensor own = shard;
      own.dtype = found->second.dtype;
      shards_.push_back(own);
    }
  }
  const CheckpointInfo& info() const override { return info_; }
  const ShardTable& shards() const override { return shards_; }
  std::string describe(int32_t shard) const override { return core::cat("memory:", shard); }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const core::ShardedTensor meta = shards_[static_cast<size_t>(shard)];
    const WholeTensor& tensor = tensors_.at({meta.key, meta.role});
    core::Dims from(meta.global_offset);
    for (size_t axis = 0; axis < from.size(); ++axis) from[axis] += offset[axis];
    copy_box(tensor.bytes.data(), tensor.shape, from, out, extent, core::Dims(extent.size(), 0), extent,
             core::size_of(meta.dtype));
  }

 private:
  WholeTensors tensors_;
  ShardTable shards_;
  CheckpointInfo info_;
};

inline std::vector<std::byte> as_bytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A state like that of a training run: weights about 0.02, norms about 1, first moments small, second moments positive.
// With bf16 the weights are bf16 and the master weights more precise; otherwise there are no masters.
inline WholeTensors trained_state(const core::TransformerConfig& config, bool bf16, bool with_optimizer) {
  using core::TensorRole;
  WholeTensors tensors;
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal;
  const auto fill = [&](const core::Dims& shape, const auto& value) {
    std::vector<float> values(static_cast<size_t>(core::num_elements(shape)));
    for (float& x : values) x = value();
    return values;
  };
  for (const layout::ParameterSpec& spec : layout::parameter_specs(config)) {
    const bool is_norm = spec.global_shape.size() == 1 && spec.key.find("norm") != std::string::npos;
    const std::vector<float> values =
        fill(spec.global_shape, [&] { return is_norm ? 1 + 0.1f * normal(random) : 0.02f * normal(random); });
    const TensorRole role = spec.is_buffer ? TensorRole::kBuffer : TensorRole::kParam;
    if (bf16 && !spec.is_buffer) {
      std::vector<kernels::bf16> rounded;
      for (const float x : values) rounded.push_back(kernels::bf16(x));
      WholeTensor tensor{core::DType::kBf16, spec.global_shape, std::vector<std::byte>(2 * rounded.size())};
      std::memcpy(tensor.bytes.data(), rounded.data(), tensor.bytes.size());
      tensors[{spec.key, role}] = std::move(tensor);
    } else {
      tensors[{spec.key, role}] = {core::DType::kFp32, spec.global_shape, as_bytes(values)};
    }
    if (!with_optimizer || spec.is_buffer) continue;
    const auto state = [&](TensorRole of, const auto& value) {
      tensors[{spec.key, of}] = {core::DType::kFp32, spec.global_shape, as_bytes(fill(spec.global_shape, value))};
    };
    if (bf16) tensors[{spec.key, TensorRole::kMaster}] = {core::DType::kFp32, spec.global_shape, as_bytes(values)};
    state(TensorRole::kExpAvg, [&] { return 1e-4f * normal(random); });
    state(TensorRole::kExpAvgSq, [&] { return 1e-8f * std::abs(normal(random)); });
  }
  return tensors;
}

// `tensors`, sharded for the layout.
inline WholeSource cut(const WholeTensors& tensors, const core::TransformerConfig& config,
                       const layout::ModelLayout& layout, CheckpointInfo info) {
  std::vector<RoleSpec> roles;
  for (const core::TensorRole role : {core::TensorRole::kParam, core::TensorRole::kMaster, core::TensorRole::kExpAvg,
                                      core::TensorRole::kExpAvgSq, core::TensorRole::kBuffer}) {
    roles.push_back({role, core::DType::kFp32});
  }
  info.model = config;
  info.layout = layout::layout_to_json(layout);
  return WholeSource(tensors, shards_of_checkpoint(layout, config, roles).shards, std::move(info));
}

}  // namespace ms::ckpt::test
