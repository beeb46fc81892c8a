#include "convert/whole_tensors.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/layout/box.h"

namespace ms::convert {
namespace {

class WholeTensors final : public TensorFile {
 public:
  WholeTensors(std::shared_ptr<ckpt::Source> source, std::string path)
      : source_(std::move(source)), path_(std::move(path)) {
    const ckpt::ShardTable& shards = source_->shards();
    for (size_t t = 0; t < shards.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      const auto shape = shards.global_shape(tensor);
      entries_.push_back({{shape.begin(), shape.end()}, {}, end_});
      end_ += static_cast<uint64_t>(shards.tensor_bytes(tensor));
    }
    for (size_t s = 0; s < shards.size(); ++s) {
      entries_[static_cast<size_t>(shards.tensor_of(s))].shards.push_back(static_cast<int32_t>(s));
    }
  }

  const std::string& path() const override { return path_; }
  size_t size() const override { return entries_.size(); }
  Tensor operator[](size_t index) const override {
    const Entry& entry = entries_[index];
    const auto tensor = static_cast<int32_t>(index);
    const uint64_t end = index + 1 < entries_.size() ? entries_[index + 1].at : end_;
    return {source_->shards().key(tensor), from_core_dtype(source_->shards().dtype(tensor)), entry.shape, entry.at,
            end};
  }
  std::optional<size_t> find(std::string_view name) const override {
    const auto tensor = source_->shards().find(name, core::TensorRole::kParam);
    return tensor ? std::optional(static_cast<size_t>(*tensor)) : std::nullopt;
  }
  void read(uint64_t offset, std::span<std::byte> out) const override;

 private:
  struct Entry {
    std::vector<uint64_t> shape;
    std::vector<int32_t> shards;  // of the source
    uint64_t at = 0;              // offset in the concatenation of all tensors
  };

  std::shared_ptr<ckpt::Source> source_;
  std::string path_;
  std::vector<Entry> entries_;  // ordered by `at`
  uint64_t end_ = 0;
};

void WholeTensors::read(uint64_t offset, std::span<std::byte> out) const {
  if (out.empty()) return;
  const auto after = std::upper_bound(entries_.begin(), entries_.end(), offset,
                                      [](uint64_t at, const Entry& entry) { return at < entry.at; });
  MS_CHECK(after != entries_.begin(), "byte ", offset, " is in no tensor");
  const Entry& entry = *std::prev(after);
  const ckpt::ShardTable& shards = source_->shards();
  const int64_t item = core::size_of(shards.dtype(static_cast<int32_t>(std::prev(after) - entries_.begin())));
  const int64_t first = static_cast<int64_t>(offset - entry.at) / item;
  const int64_t count = static_cast<int64_t>(out.size()) / item;
  const core::Dims shape(entry.shape.begin(), entry.shape.end());
  layout::for_each_box_of_range(shape, first, count, [&](const layout::Box& box, int64_t at) {
    for (const int32_t shard : entry.shards) {
      const core::Dims held = shards.offsets(static_cast<size_t>(shard));
      const auto part = layout::intersect(held, shards.extents(static_cast<size_t>(shard)), box.offset, box.extent);
      if (!part) continue;
      core::Dims in_shard = part->offset, in_box = part->offset;
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        in_shard[axis] -= held[axis];
        in_box[axis] -= box.offset[axis];
      }
      source_->read_into(shard, in_shard, part->extent, out.data() + (at - first) * item, box.extent, in_box);
    }
  });
}

}  // namespace

std::unique_ptr<TensorFile> open_whole_tensors(std::shared_ptr<ckpt::Source> source, std::string path) {
  return std::make_unique<WholeTensors>(std::move(source), std::move(path));
}

}  // namespace ms::convert
