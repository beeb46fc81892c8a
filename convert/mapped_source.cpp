#include "convert/mapped_source.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <unordered_set>

#include "convert/detail/dense_box.h"
#include "convert/detail/printable.h"
#include "convert/name_map.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::kMergeGapBytes;
using detail::kScratchBytes;
using detail::printable;

// Where a shard's elements lie: whole rows, so one contiguous range; or, transposed, columns of a matrix.
struct Placement {
  int32_t file = 0;
  uint64_t offset_bytes = 0;       // of the first element, among those of the file's tensors
  size_t tensor = 0;               // in the file's header
  int64_t transposed_columns = 0;  // of the stored matrix; 0: it is stored as we have it
};

class MappedSource final : public ckpt::Source {
 public:
  MappedSource(NamedTensors tensors, const HfConfig& config, ckpt::CheckpointInfo info);

  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override;
  std::string describe(int32_t shard) const override {
    const Placement& place = placements_.at(static_cast<size_t>(shard));
    const TensorFile& file = *tensors_.files[static_cast<size_t>(place.file)];
    return cat(file.path(), ":", printable(file[place.tensor].name));
  }

 private:
  using Table = NamedTensors::Table;

  void add_missing_prefix(Table& table, const Family& family) const;
  void add_role(core::TensorRole role, const Table& table, const HfConfig& config);
  void add_tensor(core::TensorRole role, const MappedTensor& mapped, const NamedTensors::Place& found);
  void check_tied_output(const NamedTensors::Place& output, const NamedTensors::Place& embedding,
                         const std::string& embedding_name);
  void read_transposed(const core::ShardedTensor& meta, const Placement& place, const core::Dims& offset,
                       const core::Dims& extent, std::byte* out) const;

  NamedTensors tensors_;
  ckpt::CheckpointInfo info_;
  ckpt::ShardTable shards_;
  std::vector<Placement> placements_;  // of shards_
};

// "tensor x", "exp_avg of x".
std::string text_of(core::TensorRole role, std::string_view name) {
  return role == core::TensorRole::kParam ? cat("tensor ", name) : cat(core::role_name(role), " of ", name);
}

MappedSource::MappedSource(NamedTensors tensors, const HfConfig& config, ckpt::CheckpointInfo info)
    : tensors_(std::move(tensors)), info_(std::move(info)) {
  for (auto& [role, table] : tensors_.tables) {
    add_missing_prefix(table, *config.family);
    add_role(role, table, config);
  }
  info_.model = config.model;
  info_.model_extra["family"] = config.family->model_type;
  info_.model_extra["hf_config"] = config.original;
}

void MappedSource::add_role(core::TensorRole role, const Table& table, const HfConfig& config) {
  const std::string embedding = cat(config.family->prefix, config.family->before[0].hf);
  std::unordered_set<std::string_view> used;
  for_each_tensor(*config.family, config.model, [&](const MappedTensor& mapped) {
    const auto found = table.find(mapped.name);
    if (found == table.end()) {
      throw Error(ErrorCode::kCorruptData,
                  cat(tensors_.where, ": ", text_of(role, mapped.name), " is missing; config.json (model_type ",
                      config.family->model_type, ", ", config.model.num_layers, " layers) asks for it"));
    }
    used.insert(found->first);
    add_tensor(role, mapped, found->second);
  });
  for (const auto& [name, found] : table) {
    if (used.contains(name) || is_ignored_buffer(name)) continue;
    if (name == kHfOutput && !config.model.untie_embeddings_and_output_weights) {
      check_tied_output(found, table.at(embedding), embedding);
      continue;
    }
    throw Error(ErrorCode::kUnsupported,
                cat(tensors_.where, ": ", text_of(role, printable(name)), " belongs to no part of a ",
                    config.family->model_type, " model with this config.json"));
  }
}

// Files of some families on the hub hold the bare model, whose tensors lack the prefix of the model with its head.
void MappedSource::add_missing_prefix(Table& table, const Family& family) const {
  if (!family.prefix_is_optional || !table.contains(family.before[0].hf)) return;
  Table renamed;
  for (auto& [name, found] : table) {
    const bool bare = name != kHfOutput && !name.starts_with(family.prefix);
    const std::string full = bare ? cat(family.prefix, name) : name;
    if (!renamed.emplace(full, found).second) {
      throw Error(ErrorCode::kCorruptData,
                  cat(tensors_.where, ": holds ", printable(full), " with and without ", family.prefix));
    }
  }
  table = std::move(renamed);
}

void MappedSource::add_tensor(core::TensorRole role, const MappedTensor& mapped, const NamedTensors::Place& found) {
  const TensorFile& file = *tensors_.files[static_cast<size_t>(found.file)];
  const TensorFile::Tensor tensor = file[found.index];
  const auto same_dim = [](uint64_t seen, int64_t wanted) { return seen == static_cast<uint64_t>(wanted); };
  if (!std::equal(tensor.shape.begin(), tensor.shape.end(), mapped.shape.begin(), mapped.shape.end(), same_dim)) {
    throw Error(ErrorCode::kCorruptData, cat(file.path(), ": ", text_of(role, mapped.name), " has shape ",
                                             std::vector<uint64_t>(tensor.shape.begin(), tensor.shape.end()),
                                             " but config.json says ", mapped.shape));
  }
  const auto dtype = to_core_dtype(tensor.dtype);
  if (dtype != core::DType::kFp32 && dtype != core::DType::kBf16 && dtype != core::DType::kFp16) {
    throw Error(ErrorCode::kUnsupported,
                cat(file.path(), ": ", text_of(role, mapped.name), " is ", safetensors_dtype_name(tensor.dtype),
                    "; weights may be F32, BF16 or F16"));
  }
  const int64_t columns = mapped.transposed ? mapped.shape[1] : 0;
  const int64_t step =  // between the rows of a piece
      mapped.transposed ? core::size_of(*dtype) : static_cast<int64_t>(tensor.end - tensor.begin) / mapped.shape[0];
  for (const TensorPiece& piece : mapped.pieces) {
    shards_.push_back({mapped.key, role, *dtype, mapped.global_shape, piece.offset, piece.extent});
    placements_.push_back({found.file, tensor.begin + static_cast<uint64_t>(piece.row * step), found.index, columns});
  }
}

void MappedSource::check_tied_output(const NamedTensors::Place& output, const NamedTensors::Place& embedding,
                                     const std::string& embedding_name) {
  const TensorFile& output_file = *tensors_.files[static_cast<size_t>(output.file)];
  const TensorFile& embedding_file = *tensors_.files[static_cast<size_t>(embedding.file)];
  const TensorFile::Tensor a = output_file[output.index];
  const TensorFile::Tensor b = embedding_file[embedding.index];
  bool equal = a.dtype == b.dtype && std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end());
  const uint64_t size = a.end - a.begin;
  std::vector<std::byte> left(1 << 20), right(1 << 20);
  for (uint64_t done = 0; equal && done < size; done += left.size()) {
    const size_t count = std::min<uint64_t>(left.size(), size - done);
    output_file.read(a.begin + done, std::span(left).first(count));
    embedding_file.read(b.begin + done, std::span(right).first(count));
    equal = std::memcmp(left.data(), right.data(), count) == 0;
  }
  if (!equal) {
    throw Error(ErrorCode::kCorruptData, cat(output_file.path(), ": ", kHfOutput, " differs from ", embedding_name,
                                             " but config.json says tie_word_embeddings: true"));
  }
}

void MappedSource::read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) {
  const core::ShardedTensor meta = shards_[static_cast<size_t>(shard)];
  const Placement& place = placements_[static_cast<size_t>(shard)];
  const TensorFile& file = *tensors_.files[static_cast<size_t>(place.file)];
  detail::check_box(meta.local_shape, offset, extent);
  if (place.transposed_columns > 0) return read_transposed(meta, place, offset, extent, out);
  detail::read_dense_box(meta.local_shape, core::size_of(meta.dtype), offset, extent, out,
                         [&](int64_t at, std::span<std::byte> bytes) {
                           file.read(place.offset_bytes + static_cast<uint64_t>(at), bytes);
                         });
}

// Our box [rows, columns] is, as stored, [columns, rows]: stored rows are read whole over the box's width, some at
// once, and turned.
void MappedSource::read_transposed(const core::ShardedTensor& meta, const Placement& place, const core::Dims& offset,
                                   const core::Dims& extent, std::byte* out) const {
  const TensorFile& file = *tensors_.files[static_cast<size_t>(place.file)];
  const int64_t item = core::size_of(meta.dtype);
  const int64_t run = extent[0] * item, stride = place.transposed_columns * item;
  if (run == 0) return;
  const bool merges = stride - run < kMergeGapBytes && stride <= kScratchBytes;
  const int64_t at_once = merges ? std::max<int64_t>(1, kScratchBytes / stride) : 1;
  std::vector<std::byte> scratch(static_cast<size_t>(merges ? at_once * stride : run));
  for (int64_t column = 0; column < extent[1]; column += at_once) {
    const int64_t count = std::min(at_once, extent[1] - column);
    const uint64_t at = place.offset_bytes + static_cast<uint64_t>((offset[1] + column) * stride + offset[0] * item);
    file.read(at, std::span(scratch.data(), static_cast<size_t>((count - 1) * stride + run)));
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t row = 0; row < extent[0]; ++row) {
        std::memcpy(out + (row * extent[1] + column + c) * item, scratch.data() + c * stride + row * item,
                    static_cast<size_t>(item));
      }
    }
  }
}

}  // namespace

std::unique_ptr<ckpt::Source> make_mapped_source(NamedTensors tensors, const HfConfig& config,
                                                 ckpt::CheckpointInfo info) {
  return std::make_unique<MappedSource>(std::move(tensors), config, std::move(info));
}

}  // namespace ms::convert
