#include "convert/hf_names_source.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "convert/detail/printable.h"
#include "convert/passthrough.h"
#include "core/error.h"
#include "core/layout/box.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Dims;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

class HfNamesSource final : public ckpt::Source {
 public:
  HfNamesSource(std::unique_ptr<ckpt::Source> base, std::shared_ptr<const Family> family)
      : base_(std::move(base)), family_(std::move(family)), info_(base_->info()) {
    info_.has_model = false;
    find_shards();
    check_named(*family_, info_.model, "a result under Hugging Face's names");
    for_each_tensor(*family_, info_.model, [&](const MappedTensor& mapped) {
      Tensor tensor{base_tensor(mapped.key, mapped.role), mapped.transposed, mapped.pieces};
      add(mapped.name, mapped.role, mapped.shape, std::move(tensor));
    });
    for (const core::ShardedTensor& other : passthrough_tensors(*base_)) {
      const Dims zero(other.global_shape.size(), 0);
      add(other.key, other.role, other.global_shape,
          {base_tensor(other.key, other.role), false, {{0, zero, other.global_shape}}});
    }
  }

  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }
  std::string describe(int32_t shard) const override {
    return base_->describe(shards_of_[static_cast<size_t>(tensors_[static_cast<size_t>(shard)].base)].front());
  }
  bool expect_stream(int64_t cache_bytes, int threads) override { return base_->expect_stream(cache_bytes, threads); }
  void begin_one_pass() override { base_->begin_one_pass(); }
  void end_one_pass(bool all) override { base_->end_one_pass(all); }
  int64_t scratch_bytes() const override { return base_->scratch_bytes(); }

  void read(int32_t shard, const Dims& offset, const Dims& extent, std::byte* out) override {
    const Tensor& tensor = tensors_[static_cast<size_t>(shard)];
    if (offset.empty()) return read_base(tensor.base, {}, {}, out, {}, {});
    const size_t cut = tensor.transposed ? 1 : 0;  // axis along which the pieces are consecutive
    for (const TensorPiece& piece : tensor.pieces) {
      const int64_t rows = piece.extent.empty() ? 1 : piece.extent[0];
      const int64_t first = std::max(offset[cut], piece.row);
      const int64_t end = std::min(offset[cut] + extent[cut], piece.row + rows);
      if (first >= end) continue;
      if (tensor.transposed) {
        read_transposed(tensor.base, piece, first, end, offset, extent, out);
        continue;
      }
      Dims from = piece.offset, size = extent, place(extent.size(), 0);
      for (size_t axis = 1; axis < from.size(); ++axis) from[axis] += offset[axis];
      from[0] += first - piece.row;
      size[0] = end - first;
      place[0] = first - offset[0];
      read_base(tensor.base, from, size, out, extent, place);
    }
  }

 private:
  struct Tensor {
    int32_t base = 0;  // index of the tensor in base_
    bool transposed = false;
    std::vector<TensorPiece> pieces;
  };

  void find_shards() {
    const ckpt::ShardTable& shards = base_->shards();
    shards_of_.resize(shards.num_tensors());
    for (size_t i = 0; i < shards.size(); ++i) {
      if (shards.replica_id(i) == 0)
        shards_of_[static_cast<size_t>(shards.tensor_of(i))].push_back(static_cast<int32_t>(i));
    }
  }

  int32_t base_tensor(const std::string& key, TensorRole role) const {
    const auto found = base_->shards().find(key, role);
    if (!found) throw Error(ErrorCode::kCorruptData, cat(detail::printable(key), " is missing"));
    return *found;
  }

  void add(const std::string& name, TensorRole role, const Dims& shape, Tensor tensor) {
    shards_.push_back({name, role, base_->shards().dtype(tensor.base), shape, Dims(shape.size(), 0), shape});
    tensors_.push_back(std::move(tensor));
  }

  // Reads a box of a canonical tensor into a part of `out`, which is dense of out_shape.
  void read_base(int32_t tensor, const Dims& offset, const Dims& extent, std::byte* out, const Dims& out_shape,
                 const Dims& out_offset) const {
    const ckpt::ShardTable& shards = base_->shards();
    for (const int32_t shard : shards_of_[static_cast<size_t>(tensor)]) {
      const auto index = static_cast<size_t>(shard);
      const Dims held = shards.offsets(index);
      const auto part = layout::intersect(offset, extent, held, shards.extents(index));
      if (!part) continue;
      Dims in_shard = part->offset, in_out = part->offset;
      for (size_t axis = 0; axis < held.size(); ++axis) {
        in_shard[axis] -= held[axis];
        in_out[axis] += out_offset[axis] - offset[axis];
      }
      base_->read_into(shard, in_shard, part->extent, out, out_shape, in_out);
    }
  }

  // Reads rows [first, end) of the piece, which are columns of the tensor.
  void read_transposed(int32_t base, const TensorPiece& piece, int64_t first, int64_t end, const Dims& offset,
                       const Dims& extent, std::byte* out) const {
    const int64_t item = core::size_of(base_->shards().dtype(base)), rows = end - first, columns = extent[0];
    const Dims size = {rows, columns};
    std::vector<std::byte> box(static_cast<size_t>(rows * columns * item));
    read_base(base, {piece.offset[0] + first - piece.row, piece.offset[1] + offset[0]}, size, box.data(), size, {0, 0});
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t row = 0; row < rows; ++row) {
        std::memcpy(out + (column * extent[1] + first - offset[1] + row) * item,
                    box.data() + (row * columns + column) * item, static_cast<size_t>(item));
      }
    }
  }

  std::unique_ptr<ckpt::Source> base_;
  std::shared_ptr<const Family> family_;
  ckpt::CheckpointInfo info_;
  std::vector<std::vector<int32_t>> shards_of_;  // the shards of each tensor of base_, without replicas
  ckpt::ShardTable shards_;
  std::vector<Tensor> tensors_;  // of shards_
};

}  // namespace

std::unique_ptr<ckpt::Source> with_hf_names(std::unique_ptr<ckpt::Source> source,
                                            std::shared_ptr<const Family> family) {
  return std::make_unique<HfNamesSource>(std::move(source), std::move(family));
}

}  // namespace ms::convert
