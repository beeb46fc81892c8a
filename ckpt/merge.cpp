#include "ckpt/merge.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <utility>

#include "ckpt/execute.h"
#include "ckpt/logical_hash.h"
#include "ckpt/plan.h"
#include "core/error.h"
#include "core/layout/box.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

constexpr int64_t kPieceElements = int64_t{1} << 18;

bool has_average(DType dtype) { return dtype == DType::kFp32 || dtype == DType::kBf16 || dtype == DType::kFp16; }

class MergedSource final : public Source {
 public:
  MergedSource(std::vector<std::unique_ptr<Source>> sources, std::vector<double> weights)
      : sources_(std::move(sources)), weights_(std::move(weights)) {
    const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    for (double& weight : weights_) weight /= sum;
    for (size_t i = 1; i < sources_.size(); ++i) {
      check_same_parameters(*sources_[i], i);
      planners_.push_back(std::make_unique<Planner>(sources_[i]->shards(), shards()));
    }
  }

  const CheckpointInfo& info() const override { return sources_[0]->info(); }
  const ShardTable& shards() const override { return sources_[0]->shards(); }
  std::string describe(int32_t shard) const override { return sources_[0]->describe(shard) + ", merged"; }
  // A streaming source holds a chunk per thread and one more. If its share of the memory is smaller, no source streams:
  // a chunk is then read once in full, for its checksum, and later reads come from the page cache.
  bool expect_stream(int64_t cache_bytes, int threads) override {
    const auto share = cache_bytes / static_cast<int64_t>(sources_.size());
    if (share >= (threads + 1) * kChunkBytes) {
      for (const auto& source : sources_) source->expect_stream(share, threads);
    }
    return true;  // the memory is for the sources
  }
  void begin_one_pass() override {
    for (const auto& source : sources_) source->begin_one_pass();
  }
  void end_one_pass(bool all) override {
    for (const auto& source : sources_) source->end_one_pass(all);
  }
  // read()'s buffers, and the chunk that a source reads to verify it.
  int64_t scratch_bytes() const override {
    int64_t of_sources = 0;
    for (const auto& source : sources_) of_sources = std::max(of_sources, source->scratch_bytes());
    return kPieceElements * static_cast<int64_t>(sizeof(double) + 2 * sizeof(float)) + kChunkBytes + of_sources;
  }

  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const DType dtype = shards().dtype_of(static_cast<size_t>(shard));
    if (!averages(shards().tensor_of(static_cast<size_t>(shard)))) {
      return sources_[0]->read(shard, offset, extent, out);
    }
    const int64_t total = core::num_elements(extent);
    std::vector<double> sum;
    std::vector<float> values;
    std::vector<std::byte> bytes;
    for (int64_t first = 0; first < total; first += kPieceElements) {
      const int64_t length = std::min(kPieceElements, total - first);
      layout::for_each_box_of_range(extent, first, length, [&](const layout::Box& part, int64_t at) {
        layout::Box box = part;
        for (size_t axis = 0; axis < offset.size(); ++axis) box.offset[axis] += offset[axis];
        const int64_t count = core::num_elements(box.extent);
        sum.assign(static_cast<size_t>(count), 0);
        values.resize(static_cast<size_t>(count));
        for (size_t i = 0; i < sources_.size(); ++i) {
          read_values(i, shard, box, bytes, values);
          for (size_t k = 0; k < sum.size(); ++k) sum[k] += weights_[i] * double{values[k]};
        }
        for (size_t k = 0; k < sum.size(); ++k) values[k] = static_cast<float>(sum[k]);
        convert_elements(reinterpret_cast<const std::byte*>(values.data()), DType::kFp32,
                         out + at * core::size_of(dtype), dtype, count);
      });
    }
  }

 private:
  bool averages(int32_t tensor) const {
    return shards().role(tensor) == TensorRole::kParam && has_average(shards().dtype(tensor));
  }

  void check_same_parameters(const Source& other, size_t i) const {
    const auto refuse = [&](const ShardTable& table, int32_t tensor, const char* what) {
      throw Error(ErrorCode::kInvalidArgument, cat("checkpoint ", i + 1, " of ", sources_.size(),
                                                   " cannot be merged: ", table.key(tensor), " ", what));
    };
    for (size_t t = 0; t < shards().num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      if (shards().role(tensor) != TensorRole::kParam) continue;
      const auto found = other.shards().find(shards().key(tensor), TensorRole::kParam);
      if (!found) refuse(shards(), tensor, "is missing in it");
      const auto shape = shards().global_shape(tensor), its = other.shards().global_shape(*found);
      if (!std::equal(shape.begin(), shape.end(), its.begin(), its.end())) {
        refuse(shards(), tensor, "has another shape in it");
      }
      if (has_average(shards().dtype(tensor)) != has_average(other.shards().dtype(*found))) {
        refuse(shards(), tensor, "has a dtype in it that cannot be averaged with the first one's");
      }
    }
    for (size_t t = 0; t < other.shards().num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      if (other.shards().role(tensor) == TensorRole::kParam &&
          !shards().find(other.shards().key(tensor), TensorRole::kParam)) {
        refuse(other.shards(), tensor, "is in it, but not in the first");
      }
    }
  }

  // Reads the box of the first source's shard from source i, as fp32.
  void read_values(size_t i, int32_t shard, const layout::Box& box, std::vector<std::byte>& bytes,
                   std::vector<float>& values) {
    const size_t first_shard = static_cast<size_t>(shard);
    DType dtype = shards().dtype_of(first_shard);
    if (i == 0) {
      bytes.resize(values.size() * static_cast<size_t>(core::size_of(dtype)));
      sources_[0]->read(shard, box.offset, box.extent, bytes.data());
    } else {
      Source& source = *sources_[i];
      const auto tensor = source.shards().find(shards().key(shards().tensor_of(first_shard)), TensorRole::kParam);
      dtype = source.shards().dtype(*tensor);
      bytes.resize(values.size() * static_cast<size_t>(core::size_of(dtype)));
      std::vector<CopyRegion> copies;
      {
        std::lock_guard lock(mutex_);
        planners_[i - 1]->copies_of(shard, [&](const CopyRegion& copy) { copies.push_back(copy); });
      }
      for (const CopyRegion& copy : copies) {
        const auto common = layout::intersect(box.offset, box.extent, copy.target_offset, copy.extent);
        if (!common) continue;
        core::Dims from(common->offset), to(common->offset);
        for (size_t axis = 0; axis < from.size(); ++axis) {
          from[axis] += copy.source_offset[axis] - copy.target_offset[axis];
          to[axis] -= box.offset[axis];
        }
        source.read_into(copy.source_shard, from, common->extent, bytes.data(), box.extent, to);
      }
    }
    convert_elements(bytes.data(), dtype, reinterpret_cast<std::byte*>(values.data()), DType::kFp32,
                     static_cast<int64_t>(values.size()));
  }

  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<double> weights_;  // sum is 1
  std::mutex mutex_;
  std::vector<std::unique_ptr<Planner>> planners_;  // for all sources but the first, with its shards as targets
};

}  // namespace

std::unique_ptr<Source> merge_sources(std::vector<std::unique_ptr<Source>> sources, std::vector<double> weights) {
  if (weights.size() != sources.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("there are ", sources.size(), " checkpoints to merge, but ", weights.size(), " weights"));
  }
  for (const double weight : weights) {
    if (weight > 0 && std::isfinite(weight)) continue;
    throw Error(ErrorCode::kInvalidArgument, cat("weight ", weight, ": it must be above 0"));
  }
  return std::make_unique<MergedSource>(std::move(sources), std::move(weights));
}

}  // namespace ms::ckpt
