#include "convert/named_source.h"

#include <algorithm>

#include "ckpt/plan.h"
#include "convert/detail/dense_box.h"
#include "convert/detail/printable.h"
#include "core/error.h"
#include "core/io/bulk_reader.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Dims;
using core::Error;
using core::ErrorCode;
using detail::printable;

// JSON, safetensors and terminals accept only UTF-8 (RFC 3629: no surrogates, no overlong forms).
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    if (lead < 0x80) continue;
    const int more = lead >= 0xc2 && lead < 0xe0   ? 1
                     : lead >= 0xe0 && lead < 0xf0 ? 2
                     : lead >= 0xf0 && lead < 0xf5 ? 3
                                                   : -1;
    if (more < 0 || text.size() - i < static_cast<size_t>(more)) return false;
    uint32_t code = lead & (0x3fu >> more);
    for (int k = 0; k < more; ++k) {
      const auto next = static_cast<unsigned char>(text[i++]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3fu);
    }
    constexpr uint32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[more] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return false;
  }
  return true;
}

Dims dims_of(std::span<const uint64_t> shape, const std::string& where, std::string_view name) {
  if (shape.size() > Dims::kMaxAxes) {
    throw Error(ErrorCode::kUnsupported, cat(where, ": ", printable(name), " has ", shape.size(), " axes; at most ",
                                             Dims::kMaxAxes, " are supported"));
  }
  Dims dims;
  dims.resize(shape.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] > static_cast<uint64_t>(INT64_MAX)) {
      throw Error(ErrorCode::kCorruptData, cat(where, ": ", printable(name), " has an axis of ", shape[axis]));
    }
    dims[axis] = static_cast<int64_t>(shape[axis]);
  }
  return dims;
}

class NamedSource final : public ckpt::Source {
 public:
  NamedSource(NamedShards shards, ckpt::CheckpointInfo info) : shards_(std::move(shards)), info_(std::move(info)) {
    info_.has_model = false;
    if (shards_.shards.empty()) throw Error(ErrorCode::kNotFound, cat(shards_.where, ": contains no tensors"));
    for (const NamedShard& shard : shards_.shards) add(shard);
    for (const std::string& finding : ckpt::check_coverage(table_, 1)) {
      throw Error(ErrorCode::kCorruptData, cat(shards_.where, ": ", finding));
    }
  }

  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return table_; }
  std::string describe(int32_t shard) const override {
    const NamedShard& named = shards_.shards.at(static_cast<size_t>(shard));
    const TensorFile& file = *shards_.files[static_cast<size_t>(named.file)];
    return cat(file.path(), ":", printable(file[named.index].name));
  }
  int64_t scratch_bytes() const override { return detail::kScratchBytes + core::BulkReader::kBufferBytes; }
  void begin_one_pass() override {
    for (const auto& file : shards_.files) file->begin_one_pass();
  }
  void end_one_pass(bool all) override {
    for (const auto& file : shards_.files) file->end_one_pass(all);
  }
  std::vector<ckpt::Leftover> leftovers() const override { return shards_.leftovers; }

  void read(int32_t shard, const Dims& offset, const Dims& extent, std::byte* out) override {
    const NamedShard& named = shards_.shards.at(static_cast<size_t>(shard));
    const TensorFile& file = *shards_.files[static_cast<size_t>(named.file)];
    const uint64_t begin = file[named.index].begin;
    Dims at = offset;
    for (size_t axis = 0; axis < at.size(); ++axis) at[axis] += named.held_at[axis];
    read_box(file, begin, named.held_shape, core::size_of(table_.dtype_of(static_cast<size_t>(shard))), at, extent,
             out);
  }

 private:
  void add(const NamedShard& shard) {
    const TensorFile& file = *shards_.files[static_cast<size_t>(shard.file)];
    const TensorFile::Tensor tensor = file[shard.index];
    if (!is_utf8(shard.key)) {
      throw Error(ErrorCode::kCorruptData, cat(file.path(), ": a tensor whose name is not UTF-8"));
    }
    const auto dtype = to_stored_dtype(tensor.dtype);
    if (!dtype) {
      throw Error(ErrorCode::kUnsupported,
                  cat(file.path(), ": ", printable(shard.key), " is ", safetensors_dtype_name(tensor.dtype),
                      ", whose elements are not whole bytes"));
    }
    const auto known = table_.find(shard.key, shard.role);
    if (known && table_.dtype(*known) != *dtype) {
      throw Error(ErrorCode::kCorruptData,
                  cat(file.path(), ": ", printable(shard.key), " is ", core::dtype_name(*dtype), " here, but ",
                      core::dtype_name(table_.dtype(*known)), " in another part of it"));
    }
    table_.push_back({shard.key, shard.role, *dtype, shard.global_shape, shard.offset, shard.extent});
  }

  // Iterates over the leading axes; the last two that are cut form a matrix, whose rows are read together.
  static void read_box(const TensorFile& file, uint64_t begin, const Dims& shape, int64_t item, const Dims& offset,
                       const Dims& extent, std::byte* out) {
    const size_t axes = shape.size();
    size_t cut = axes;  // the axes from here on are read whole
    while (cut > 0 && offset[cut - 1] == 0 && extent[cut - 1] == shape[cut - 1]) item *= shape[--cut];
    if (core::num_elements(extent) == 0) return;
    const auto read_at = [&](uint64_t base) {
      return
          [&file, base](int64_t at, std::span<std::byte> bytes) { file.read(base + static_cast<uint64_t>(at), bytes); };
    };
    if (cut == 0) return read_at(begin)(0, std::span(out, static_cast<size_t>(item)));
    const size_t inner = cut >= 2 ? cut - 2 : cut - 1;  // the first axis of the matrix
    const Dims matrix(shape.begin() + inner, shape.begin() + cut), from(offset.begin() + inner, offset.begin() + cut),
        size(extent.begin() + inner, extent.begin() + cut);
    const int64_t matrix_bytes = core::num_elements(matrix) * item, box_bytes = core::num_elements(size) * item;
    Dims at(inner, 0);
    for (bool more = true; more; out += box_bytes) {
      int64_t index = 0;
      for (size_t axis = 0; axis < inner; ++axis) index = index * shape[axis] + offset[axis] + at[axis];
      detail::read_dense_box(matrix, item, from, size, out,
                             read_at(begin + static_cast<uint64_t>(index * matrix_bytes)));
      more = false;
      for (size_t axis = inner; axis-- > 0 && !more;) {
        more = ++at[axis] < extent[axis];
        if (!more) at[axis] = 0;
      }
    }
  }

  NamedShards shards_;
  ckpt::CheckpointInfo info_;
  ckpt::ShardTable table_;  // of shards_.shards
};

void add_whole(NamedShards& to, std::string_view name, core::TensorRole role, int32_t file, size_t index) {
  const TensorFile::Tensor tensor = (*to.files[static_cast<size_t>(file)])[index];
  Dims shape = dims_of(tensor.shape, to.where, name);
  Dims zero(shape.size(), 0);
  to.shards.push_back({std::string(name), role, shape, zero, shape, file, index, shape, zero});
}

}  // namespace

void add_whole_tensors(NamedShards& to, std::unique_ptr<TensorFile> file, core::TensorRole role) {
  to.files.push_back(std::move(file));
  const auto number = static_cast<int32_t>(to.files.size() - 1);
  for (size_t i = 0; i < to.files.back()->size(); ++i) add_whole(to, (*to.files.back())[i].name, role, number, i);
}

NamedShards whole_shards(NamedTensors tensors) {
  NamedShards shards;
  shards.where = std::move(tensors.where);
  shards.files = std::move(tensors.files);
  shards.leftovers = std::move(tensors.leftovers);
  for (const auto& [role, table] : tensors.tables) {
    for (const auto& [name, place] : table) add_whole(shards, name, role, place.file, place.index);
  }
  return shards;
}

std::unique_ptr<ckpt::Source> make_named_source(NamedShards shards, ckpt::CheckpointInfo info) {
  return std::make_unique<NamedSource>(std::move(shards), std::move(info));
}

}  // namespace ms::convert
