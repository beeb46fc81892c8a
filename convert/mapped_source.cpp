#include "convert/mapped_source.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <unordered_set>

#include "convert/detail/dense_box.h"
#include "convert/detail/nd_box.h"
#include "convert/detail/printable.h"
#include "convert/fp8.h"
#include "convert/name_map.h"
#include "convert/passthrough.h"
#include "core/error.h"
#include "core/io/bulk_reader.h"
#include "core/log.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::kMergeGapBytes;
using detail::kScratchBytes;
using detail::printable;

constexpr size_t kMaxMissing = 4096;

// Where a shard's elements are stored: whole rows, which are contiguous; or, if transposed, columns of a matrix.
struct Placement {
  int32_t file = 0;
  uint64_t offset_bytes = 0;       // of the first element, in the concatenation of the file's tensors
  size_t tensor = 0;               // in the file's header
  int64_t transposed_columns = 0;  // of the stored matrix; 0: not transposed
  // For FP8 weights: their scales, and the first row of the shard.
  std::optional<NamedTensors::Place> scales = std::nullopt;
  int64_t first_row = 0;
};

// Names for a message: the first few, and the count.
struct NameList {
  static constexpr size_t kMaxShown = 6;
  std::vector<std::string> shown;
  size_t count = 0;

  void add(std::string_view name) {
    if (++count <= kMaxShown) shown.emplace_back(name);
  }
  std::string text() const {
    std::string out;
    for (const std::string& name : shown) out += cat(out.empty() ? "" : ", ", name);
    return count > shown.size() ? cat(out, " and ", count - shown.size(), " more") : out;
  }
};

class MappedSource final : public ckpt::Source {
 public:
  MappedSource(NamedTensors tensors, HfConfig config, ckpt::CheckpointInfo info);

  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override;
  std::vector<ckpt::Leftover> leftovers() const override { return tensors_.leftovers; }
  void begin_one_pass() override {
    for (const auto& file : tensors_.files) file->begin_one_pass();
  }
  void end_one_pass(bool all) override {
    for (const auto& file : tensors_.files) file->end_one_pass(all);
  }
  int64_t scratch_bytes() const override { return detail::kScratchBytes + core::BulkReader::kBufferBytes; }
  std::string describe(int32_t shard) const override {
    const Placement& place = placements_.at(static_cast<size_t>(shard));
    const TensorFile& file = *tensors_.files[static_cast<size_t>(place.file)];
    return cat(file.path(), ":", printable(file[place.tensor].name));
  }

 private:
  using Table = NamedTensors::Table;

  void add_missing_prefix(Table& table, const Family& family) const;
  void add_role(core::TensorRole role, const Table& table);
  static const Table::value_type* find(const Table& table, const MappedTensor& mapped);
  [[noreturn]] void refuse_missing(core::TensorRole role, const Table& table, const NameList& missing,
                                   const std::unordered_set<std::string_view>& used) const;
  void add_tensor(core::TensorRole role, const MappedTensor& mapped, const Table& table,
                  const Table::value_type& found);
  core::DType weight_dtype(core::TensorRole role, const TensorFile& file, const TensorFile::Tensor& tensor,
                           bool has_scales) const;
  std::optional<NamedTensors::Place> scales_of(const Table& table, const std::string& name,
                                               const TensorFile::Tensor& tensor, const core::Dims& shape) const;
  void add_passthrough(const Table::value_type& item);
  void refuse_foreign(core::TensorRole role, const NameList& foreign) const;
  void check_copy(const Table::value_type& copy, const Table::value_type& of, const char* why) const;
  void read_transposed(const core::ShardedTensor& meta, const Placement& place, const core::Dims& offset,
                       const core::Dims& extent, std::byte* out) const;
  void read_scaled(const core::ShardedTensor& meta, const Placement& place, const core::Dims& offset,
                   const core::Dims& extent, std::byte* out) const;

  NamedTensors tensors_;
  HfConfig config_;
  ckpt::CheckpointInfo info_;
  ckpt::ShardTable shards_;
  std::vector<Placement> placements_;  // of shards_
};

// "tensor x", "exp_avg of x".
std::string text_of(core::TensorRole role, std::string_view name) {
  return role == core::TensorRole::kParam ? cat("tensor ", name) : cat(core::role_name(role), " of ", name);
}

// Removes multi-token prediction layers that config.json announces but the folder lacks: transformers drops them when
// it saves a model.
void drop_absent_mtp(const NamedTensors& tensors, HfConfig& config) {
  if (config.model.mtp_num_layers == 0 || tensors.tables.empty()) return;
  const NamedTensors::Table& table = tensors.tables.begin()->second;
  const std::string first = layer_prefix(*config.family, config.model.num_layers);
  const auto found = table.lower_bound(first);
  if (found != table.end() && found->first.starts_with(first)) return;
  core::log_info("convert.hf", cat(tensors.where, ": ", config.family->mtp_key, " is ", config.model.mtp_num_layers,
                                   ", but the weights of these layers are missing: the model is read without them"));
  config.model.mtp_num_layers = 0;
}

// A model with more layers or experts than the files have bytes cannot be complete; refusing it limits the list of
// parameters.
void check_size(const NamedTensors& tensors, const core::TransformerConfig& model) {
  uint64_t bytes = 0;
  for (const auto& file : tensors.files) {
    for (size_t i = 0; i < file->size(); ++i) bytes += (*file)[i].end - (*file)[i].begin;
  }
  const std::vector<bool> layers = model.layers_with_experts();
  const auto with_experts = static_cast<uint64_t>(std::count(layers.begin(), layers.end(), true));
  if (static_cast<uint64_t>(model.num_layers) + with_experts * static_cast<uint64_t>(model.num_experts) <= bytes / 2) {
    return;
  }
  throw Error(ErrorCode::kCorruptData,
              cat(tensors.where, ": config.json says ", model.num_layers, " layers and ", model.num_experts,
                  " experts, more than the ", bytes, " bytes of all tensors can hold"));
}

MappedSource::MappedSource(NamedTensors tensors, HfConfig config, ckpt::CheckpointInfo info)
    : tensors_(std::move(tensors)), config_(std::move(config)), info_(std::move(info)) {
  drop_absent_mtp(tensors_, config_);
  check_size(tensors_, config_.model);
  check_named(*config_.family, config_.model, tensors_.where);
  for (auto& [role, table] : tensors_.tables) {
    add_missing_prefix(table, *config_.family);
    add_role(role, table);
  }
  info_.model = config_.model;
  info_.model_extra["family"] = config_.family->model_type;
  if (config_.is_wrapper) {
    info_.model_extra["wrapped"] = {{"prefix", config_.wrapped.prefix}, {"output", config_.wrapped.output}};
  }
  if (!config_.family->map_text.empty()) info_.model_extra["name_map"] = config_.family->map_text;
  info_.model_extra["hf_config"] = config_.original;
}

// Finds a tensor by its name or its alternative name; null if neither exists.
const MappedSource::Table::value_type* MappedSource::find(const Table& table, const MappedTensor& mapped) {
  auto found = table.find(mapped.name);
  if (found == table.end() && !mapped.also.empty()) found = table.find(mapped.also);
  return found != table.end() ? &*found : nullptr;
}

// Names both sides of the mismatch: what the model lacks, and tensors with unknown names.
void MappedSource::refuse_missing(core::TensorRole role, const Table& table, const NameList& missing,
                                  const std::unordered_set<std::string_view>& used) const {
  NameList foreign;
  for (const auto& item : table) {
    if (!used.contains(item.first) && !is_ignored_buffer(item.first)) foreign.add(printable(item.first));
  }
  const bool one = missing.count == 1;
  throw Error(ErrorCode::kCorruptData,
              cat(tensors_.where, ": ", text_of(role, missing.shown[0]), " is missing",
                  one ? std::string() : cat(", one of ", missing.count, " missing: ", missing.text()),
                  "; config.json (model_type ", config_.family->model_type, ", ", config_.model.num_layers,
                  " layers) requires ", one ? "it" : "them",
                  foreign.count == 0
                      ? std::string()
                      : cat("; there ", foreign.count == 1 ? "is 1 tensor" : cat("are ", foreign.count, " tensors"),
                            " under other names: ", foreign.text())));
}

void MappedSource::refuse_foreign(core::TensorRole role, const NameList& foreign) const {
  if (foreign.count == 0) return;
  throw Error(ErrorCode::kUnsupported,
              cat(tensors_.where, ": ", text_of(role, foreign.shown[0]), " is not part of a ",
                  config_.family->model_type, " model with this config.json",
                  foreign.count > 1 ? cat(", nor are others, ", foreign.count, " in all: ", foreign.text()) : "",
                  "; --passthrough REGEX keeps such tensors of a hf source under their own names"));
}

void MappedSource::add_role(core::TensorRole role, const Table& table) {
  const bool tied = !config_.model.untie_embeddings_and_output_weights;
  std::unordered_set<std::string_view> used;
  std::vector<std::pair<const Table::value_type*, std::string>> copies;  // the copy, and the tensor that it must equal
  const Table::value_type *embedding = nullptr, *output = nullptr;
  NameList missing;
  for_each_tensor(*config_.family, config_.model, [&](const MappedTensor& mapped) {
    if (role != core::TensorRole::kParam && mapped.role == core::TensorRole::kBuffer) return;
    const Table::value_type* found = find(table, mapped);
    if (found == nullptr) {
      if (mapped.is_copy) return;
      missing.add(mapped.name);
      // config.json may claim any number of layers: list no more names than the folder's size justifies.
      if (missing.count > kMaxMissing && missing.count > table.size()) refuse_missing(role, table, missing, used);
      return;
    }
    used.insert(found->first);
    if (mapped.is_copy) {
      copies.emplace_back(found, mapped.key);
      return;
    }
    if (mapped.key == kWordEmbeddings) embedding = found;
    if (mapped.key == kOutputLayer) output = found;
    add_tensor(role, mapped, table, *found);
  });
  if (missing.count > 0) refuse_missing(role, table, missing, used);
  for (const auto& [copy, key] : copies) {
    check_copy(*copy, key == kWordEmbeddings ? *embedding : *output, "multi-token prediction layers share it");
  }
  NameList foreign;
  for (const auto& item : table) {
    const std::string& name = item.first;
    if (used.contains(name) || is_ignored_buffer(name)) continue;
    if (tensors_.passes_through && tensors_.passes_through(name)) {
      if (role != core::TensorRole::kParam) {
        throw Error(ErrorCode::kUnsupported,
                    cat(tensors_.where, ": ", text_of(role, printable(name)),
                        ": tensors outside the family are copied without optimizer state; give --drop-optimizer"));
      }
      add_passthrough(item);
      continue;
    }
    if (name.ends_with(kScaleSuffix) &&
        used.contains(std::string_view(name).substr(0, name.size() - kScaleSuffix.size()))) {
      continue;
    }
    if (tied && (name == kHfOutput || name == output_name(*config_.family))) {
      check_copy(item, *embedding, "config.json says tie_word_embeddings: true");
      continue;
    }
    foreign.add(printable(name));
  }
  refuse_foreign(role, foreign);
}

// A folder saved from the bare model (AutoModel) lacks the prefix that names have in the model with a head.
void MappedSource::add_missing_prefix(Table& table, const Family& family) const {
  if (family.prefix.empty() || !table.contains(embedding_name(family))) return;
  Table renamed;
  for (auto& [name, found] : table) {
    const bool bare = name != output_name(family) && !name.starts_with(family.prefix);
    const std::string full = bare ? cat(family.prefix, name) : name;
    if (!renamed.emplace(full, found).second) {
      throw Error(ErrorCode::kCorruptData,
                  cat(tensors_.where, ": contains ", printable(full), " with and without ", family.prefix));
    }
  }
  table = std::move(renamed);
}

core::DType MappedSource::weight_dtype(core::TensorRole role, const TensorFile& file, const TensorFile::Tensor& tensor,
                                       bool has_scales) const {
  if (has_scales) return core::DType::kBf16;
  const auto dtype = to_core_dtype(tensor.dtype);
  if (dtype == core::DType::kFp32 || dtype == core::DType::kBf16 || dtype == core::DType::kFp16) return *dtype;
  throw Error(ErrorCode::kUnsupported,
              cat(file.path(), ": ", text_of(role, tensor.name), " is ", safetensors_dtype_name(tensor.dtype),
                  "; weights may be F32, BF16 or F16, or F8_E4M3 where config.json has a quantization_config with "
                  "weight_block_size"));
}

// Finds X.weight_scale_inv of an FP8 weight: one fp32 number per block.
std::optional<NamedTensors::Place> MappedSource::scales_of(const Table& table, const std::string& name,
                                                           const TensorFile::Tensor& tensor,
                                                           const core::Dims& shape) const {
  if (tensor.dtype != SafetensorsDType::kF8E4M3 || config_.fp8_block_rows == 0) return std::nullopt;
  const auto found = table.find(cat(name, kScaleSuffix));
  if (found == table.end()) {
    throw Error(ErrorCode::kCorruptData, cat(tensors_.where, ": ", printable(name), " is F8_E4M3, but its scales, ",
                                             printable(cat(name, kScaleSuffix)), ", are missing"));
  }
  const TensorFile& file = *tensors_.files[static_cast<size_t>(found->second.file)];
  const TensorFile::Tensor scales = file[found->second.index];
  const auto blocks = [](int64_t size, int64_t block) { return static_cast<uint64_t>((size + block - 1) / block); };
  const std::vector<uint64_t> wanted = {blocks(shape[0], config_.fp8_block_rows),
                                        blocks(shape.back(), config_.fp8_block_columns)};
  if (shape.size() != 2 || scales.dtype != SafetensorsDType::kF32 ||
      !std::equal(scales.shape.begin(), scales.shape.end(), wanted.begin(), wanted.end())) {
    throw Error(ErrorCode::kCorruptData,
                cat(file.path(), ": ", printable(found->first), " is ", safetensors_dtype_name(scales.dtype), " ",
                    std::vector<uint64_t>(scales.shape.begin(), scales.shape.end()), "; a matrix of ", shape,
                    " in blocks of ", config_.fp8_block_rows, " x ", config_.fp8_block_columns, " has F32 ", wanted));
  }
  return found->second;
}

void MappedSource::add_tensor(core::TensorRole role, const MappedTensor& mapped, const Table& table,
                              const Table::value_type& item) {
  const NamedTensors::Place& found = item.second;
  const TensorFile& file = *tensors_.files[static_cast<size_t>(found.file)];
  const TensorFile::Tensor tensor = file[found.index];
  const bool packed = mapped.expert >= 0 && item.first == mapped.also;
  core::Dims shape = mapped.shape;
  if (packed) shape = {config_.model.num_experts, mapped.packed_rows, mapped.shape[1]};
  const auto same_dim = [](uint64_t seen, int64_t wanted) { return seen == static_cast<uint64_t>(wanted); };
  if (!std::equal(tensor.shape.begin(), tensor.shape.end(), shape.begin(), shape.end(), same_dim)) {
    throw Error(ErrorCode::kCorruptData,
                cat(file.path(), ": ", text_of(role, printable(item.first)), " has shape ",
                    std::vector<uint64_t>(tensor.shape.begin(), tensor.shape.end()), " but config.json says ", shape));
  }
  const auto scales = scales_of(table, item.first, tensor, shape);
  const core::DType dtype = weight_dtype(role, file, tensor, scales.has_value());
  const int64_t columns = mapped.transposed ? mapped.shape[1] : 0;
  const int64_t rows = packed ? shape[0] * shape[1] : shape[0];
  const int64_t step =  // distance between the rows of a piece
      mapped.transposed ? core::size_of(dtype) : static_cast<int64_t>(tensor.end - tensor.begin) / rows;
  const int64_t first_row = packed ? mapped.expert * mapped.packed_rows + mapped.packed_row : 0;
  const core::TensorRole own_role = mapped.role == core::TensorRole::kBuffer ? mapped.role : role;
  for (const TensorPiece& piece : mapped.pieces) {
    shards_.push_back({mapped.key, own_role, dtype, mapped.global_shape, piece.offset, piece.extent});
    placements_.push_back({found.file, tensor.begin + static_cast<uint64_t>((first_row + piece.row) * step),
                           found.index, columns, scales, piece.row});
  }
}

// Adds a tensor whole, under its own name.
void MappedSource::add_passthrough(const Table::value_type& item) {
  const TensorFile& file = *tensors_.files[static_cast<size_t>(item.second.file)];
  const TensorFile::Tensor tensor = file[item.second.index];
  const auto dtype = to_core_dtype(tensor.dtype);
  if (is_canonical_name(item.first) || !dtype) {
    throw Error(
        ErrorCode::kUnsupported,
        cat(file.path(), ": ", printable(item.first), " (", safetensors_dtype_name(tensor.dtype),
            ") cannot be copied: ", dtype ? "its name begins like a canonical parameter's" : "its element type"));
  }
  const core::Dims shape(tensor.shape.begin(), tensor.shape.end());
  shards_.push_back({item.first, core::TensorRole::kBuffer, *dtype, shape, core::Dims(shape.size(), 0), shape});
  placements_.push_back({.file = item.second.file, .offset_bytes = tensor.begin, .tensor = item.second.index});
}

void MappedSource::check_copy(const Table::value_type& copy, const Table::value_type& of, const char* why) const {
  const TensorFile& copy_file = *tensors_.files[static_cast<size_t>(copy.second.file)];
  const TensorFile& file = *tensors_.files[static_cast<size_t>(of.second.file)];
  const TensorFile::Tensor a = copy_file[copy.second.index];
  const TensorFile::Tensor b = file[of.second.index];
  bool equal = a.dtype == b.dtype && std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end());
  const uint64_t size = a.end - a.begin;
  std::vector<std::byte> left(1 << 20), right(1 << 20);
  for (uint64_t done = 0; equal && done < size; done += left.size()) {
    const size_t count = std::min<uint64_t>(left.size(), size - done);
    copy_file.read(a.begin + done, std::span(left).first(count));
    file.read(b.begin + done, std::span(right).first(count));
    equal = std::memcmp(left.data(), right.data(), count) == 0;
  }
  if (equal) return;
  throw Error(ErrorCode::kCorruptData,
              cat(copy_file.path(), ": ", copy.first, " differs from ", of.first, " but ", why));
}

void MappedSource::read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) {
  const core::ShardedTensor meta = shards_[static_cast<size_t>(shard)];
  const Placement& place = placements_[static_cast<size_t>(shard)];
  const TensorFile& file = *tensors_.files[static_cast<size_t>(place.file)];
  if (meta.local_shape.empty() || meta.local_shape.size() > 2) {  // passthrough tensors
    return detail::read_nd_box(meta.local_shape, core::size_of(meta.dtype), offset, extent, out,
                               [&](int64_t at, std::span<std::byte> bytes) {
                                 file.read(place.offset_bytes + static_cast<uint64_t>(at), bytes);
                               });
  }
  detail::check_box(meta.local_shape, offset, extent);
  try {
    if (place.transposed_columns > 0) return read_transposed(meta, place, offset, extent, out);
    if (place.scales) return read_scaled(meta, place, offset, extent, out);
    detail::read_dense_box(meta.local_shape, core::size_of(meta.dtype), offset, extent, out,
                           [&](int64_t at, std::span<std::byte> bytes) {
                             file.read(place.offset_bytes + static_cast<uint64_t>(at), bytes);
                           });
  } catch (const Error& error) {  // the file's message names only bytes
    throw error.within(text_of(meta.role, printable(file[place.tensor].name)));
  }
}

void MappedSource::read_scaled(const core::ShardedTensor& meta, const Placement& place, const core::Dims& offset,
                               const core::Dims& extent, std::byte* out) const {
  const TensorFile& file = *tensors_.files[static_cast<size_t>(place.file)];
  const TensorFile& scale_file = *tensors_.files[static_cast<size_t>(place.scales->file)];
  const TensorFile::Tensor tensor = scale_file[place.scales->index];
  const auto columns = static_cast<int64_t>(tensor.shape[1]);
  const int64_t rows_at_once = std::max<int64_t>(1, kScratchBytes / std::max<int64_t>(1, extent[1]));
  std::vector<std::byte> raw(static_cast<size_t>(std::min(extent[0], rows_at_once) * extent[1]));
  std::vector<float> scales(static_cast<size_t>(columns));
  auto* to = reinterpret_cast<kernels::bf16*>(out);
  int64_t scale_row = -1;
  for (int64_t row = 0; row < extent[0]; ++row, to += extent[1]) {
    const int64_t in_scratch = row % rows_at_once;
    if (in_scratch == 0) {
      const int64_t rows = std::min(rows_at_once, extent[0] - row);
      detail::read_dense_box(meta.local_shape, 1, {offset[0] + row, offset[1]}, {rows, extent[1]}, raw.data(),
                             [&](int64_t at, std::span<std::byte> bytes) {
                               file.read(place.offset_bytes + static_cast<uint64_t>(at), bytes);
                             });
    }
    const int64_t wanted = (place.first_row + offset[0] + row) / config_.fp8_block_rows;
    if (wanted != scale_row) {
      scale_row = wanted;
      scale_file.read(tensor.begin + static_cast<uint64_t>(wanted * columns) * sizeof(float),
                      std::as_writable_bytes(std::span(scales)));
    }
    dequantize_row(std::span(raw).subspan(static_cast<size_t>(in_scratch * extent[1]), static_cast<size_t>(extent[1])),
                   offset[1], scales, config_.fp8_block_columns, to);
  }
}

// Our box [rows, columns] is stored as [columns, rows]. Reads several stored rows at a time over the box's width, and
// transposes them.
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
