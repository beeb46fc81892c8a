#include "ckpt/detail/table_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/layout/box.h"
#include "kernels/checksum.h"

namespace ms::ckpt::detail {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr size_t kPiece = size_t{1} << 20;
constexpr std::array<char, 8> kMagic = {'m', 's', 't', 'a', 'b', 'l', 'e', '1'};

struct FileHeader {
  std::array<char, 8> magic = kMagic;
  uint64_t tensors = 0, boxes = 0, chunks = 0;
};

struct TensorHeader {
  uint64_t logical_xxh3 = 0;
  uint32_t boxes = 0;
  uint16_t name_bytes = 0;
  uint8_t role = 0, dtype = 0, axes = 0;
  uint8_t dim_bytes = 4;  // of each number of a box: 4 or 8
  uint16_t zero = 0;
  uint32_t zero_too = 0;
};
static_assert(sizeof(FileHeader) == 32 && sizeof(TensorHeader) == 24);

struct BoxHeader {
  uint64_t at = 0;
  int32_t file = 0, copy = 0;  // file: with the kCompressed bit
};
constexpr int32_t kCompressed = BoxPlace::kMaxFiles;
static_assert(sizeof(BoxHeader) == 16);

// The hash of a whole file, equal to hash_structure of a file without boxes.
uint64_t hash_of_pieces(const std::vector<uint64_t>& pieces, int64_t size_bytes) {
  std::vector<uint64_t> words = {0, static_cast<uint64_t>(size_bytes)};
  words.insert(words.end(), pieces.begin(), pieces.end());
  return kernels::xxh3(words.data(), words.size() * sizeof(uint64_t));
}

class TableWriter {
 public:
  explicit TableWriter(const std::string& path) : file_(core::File::create(path)) { buffer_.reserve(kPiece); }

  void put(const void* data, size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    while (size > 0) {
      const size_t taken = std::min(size, kPiece - buffer_.size());
      buffer_.insert(buffer_.end(), bytes, bytes + taken);
      if (buffer_.size() == kPiece) flush();
      bytes += taken;
      size -= taken;
    }
  }

  ManifestFile finish() {
    if (!buffer_.empty()) flush();
    file_.fsync();
    file_.close();
    return {kTableName, written_, hash_of_pieces(pieces_, written_)};
  }

 private:
  void flush() {
    pieces_.push_back(kernels::xxh3(buffer_.data(), buffer_.size()));
    file_.pwrite(buffer_, written_);
    written_ += static_cast<int64_t>(buffer_.size());
    buffer_.clear();
  }
  core::File file_;
  std::vector<std::byte> buffer_;
  std::vector<uint64_t> pieces_;
  int64_t written_ = 0;
};

class TableReader {
 public:
  TableReader(const std::string& path, int64_t size_bytes) : file_(core::File::open_read(path)), size_(size_bytes) {
    if (file_.size_bytes() != size_bytes) {
      corrupt(cat("it has ", file_.size_bytes(), " bytes, but the manifest says ", size_bytes));
    }
  }

  [[noreturn]] void corrupt(const std::string& text) const {
    throw Error(ErrorCode::kCorruptData, cat(file_.path(), ": ", text));
  }

  // The next bytes; valid until the next call.
  const std::byte* take(size_t size) {
    if (size <= buffer_.size() - at_) {
      at_ += size;
      return buffer_.data() + at_ - size;
    }
    joined_.resize(size);
    for (size_t done = 0; done < size;) {
      if (at_ == buffer_.size()) fill();
      const size_t taken = std::min(size - done, buffer_.size() - at_);
      std::memcpy(joined_.data() + done, buffer_.data() + at_, taken);
      at_ += taken;
      done += taken;
    }
    return joined_.data();
  }
  void get(void* data, size_t size) {
    if (size > 0) std::memcpy(data, take(size), size);
  }

  int64_t left() const { return size_ - read_ + static_cast<int64_t>(buffer_.size() - at_); }

  uint64_t finish() const { return hash_of_pieces(pieces_, size_); }

 private:
  void fill() {
    if (read_ == size_) corrupt("it ends within the table");
    buffer_.resize(static_cast<size_t>(std::min<int64_t>(kPiece, size_ - read_)));
    file_.pread(buffer_, read_);
    read_ += static_cast<int64_t>(buffer_.size());
    pieces_.push_back(kernels::xxh3(buffer_.data(), buffer_.size()));
    at_ = 0;
  }
  core::File file_;
  int64_t size_ = 0, read_ = 0;
  std::vector<std::byte> buffer_, joined_;
  size_t at_ = 0;
  std::vector<uint64_t> pieces_;
};

}  // namespace

int32_t add_listed_tensor(Manifest& manifest, std::string_view name, core::TensorRole role, core::DType dtype,
                          std::span<const int64_t> shape, uint64_t logical_xxh3, std::string_view where) {
  if (manifest.boxes.find(name, role)) {
    throw Error(ErrorCode::kCorruptData, cat(where, ": ", name, ": the tensor is listed twice"));
  }
  manifest.logical_xxh3.push_back(logical_xxh3);
  return manifest.boxes.add_tensor(name, role, dtype, shape);
}

void add_listed_box(Manifest& manifest, int32_t tensor, std::span<const int64_t> offset, std::span<const int64_t> shape,
                    int64_t file, int64_t copy, int64_t at, std::span<const uint64_t> chunks, bool compressed,
                    std::string_view where) {
  const auto refuse = [&](const std::string& text) {
    throw Error(ErrorCode::kCorruptData, cat(where, ": ", manifest.boxes.key(tensor), ": ", text));
  };
  const auto global = manifest.boxes.global_shape(tensor);
  bool inside = offset.size() == global.size() && shape.size() == global.size();
  int64_t size = core::size_of(manifest.boxes.dtype(tensor));
  for (size_t axis = 0; inside && axis < global.size(); ++axis) {
    inside = offset[axis] >= 0 && shape[axis] > 0 && offset[axis] <= global[axis] - shape[axis];
    size *= shape[axis];
  }
  if (!inside) {
    refuse(cat("box ", offset, " + ", shape, " does not lie in a tensor of shape ", global));
  }
  if (static_cast<int64_t>(chunks.size()) != chunks_in(size)) {
    refuse(cat(chunks.size(), " chunk hashes, expected ", chunks_in(size)));
  }
  if (file < 0 || file >= BoxPlace::kMaxFiles || at < 0) refuse(cat("byte ", at, " of file ", file));
  if (manifest.chunk_xxh3.size() + chunks.size() > UINT32_MAX) refuse("more chunks than a checkpoint can have");
  manifest.add_box(tensor, offset, shape, static_cast<int32_t>(file), static_cast<int32_t>(copy), at, chunks,
                   compressed);
}

ManifestFile write_table(const std::string& path, const Manifest& manifest) {
  const ShardTable& table = manifest.boxes;
  TableWriter out(path);
  const FileHeader header{kMagic, table.num_tensors(), table.size(), manifest.chunk_xxh3.size()};
  out.put(&header, sizeof header);
  size_t box = 0;
  for (size_t t = 0; t < table.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const auto shape = table.global_shape(tensor);
    const std::string_view name = table.key(tensor);
    size_t end = box;
    while (end < table.size() && table.tensor_of(end) == tensor) ++end;
    const bool wide = std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size > UINT32_MAX; });
    TensorHeader head;
    head.logical_xxh3 = manifest.logical_xxh3[t];
    head.boxes = static_cast<uint32_t>(end - box);
    head.name_bytes = static_cast<uint16_t>(name.size());
    head.role = static_cast<uint8_t>(table.role(tensor));
    head.dtype = static_cast<uint8_t>(table.dtype(tensor));
    head.axes = static_cast<uint8_t>(shape.size());
    head.dim_bytes = wide ? 8 : 4;
    MS_CHECK(name.size() <= UINT16_MAX, "a tensor name of ", name.size(), " bytes");
    out.put(&head, sizeof head);
    out.put(shape.data(), shape.size_bytes());
    out.put(name.data(), name.size());
    for (; box < end; ++box) {
      const BoxPlace& place = manifest.places[box];
      const BoxHeader box_head{static_cast<uint64_t>(place.at), place.file | (place.compressed ? kCompressed : 0),
                               place.copy};
      out.put(&box_head, sizeof box_head);
      for (const bool extents : {false, true}) {
        for (size_t axis = 0; axis < shape.size(); ++axis) {
          const auto value = static_cast<uint64_t>(extents ? table.extent(box, axis) : table.offset(box, axis));
          out.put(&value, head.dim_bytes);
        }
      }
      const auto chunks = manifest.chunks_of(box);
      out.put(chunks.data(), chunks.size_bytes());
    }
  }
  return out.finish();
}

void read_table(const std::string& path, const ManifestFile& entry, int64_t tensors, int64_t boxes,
                Manifest& manifest) {
  TableReader in(path, entry.bytes);
  FileHeader header;
  in.get(&header, sizeof header);
  if (header.magic != kMagic) in.corrupt("not a table of tensors");
  const auto fits = [&](uint64_t count, size_t least) { return count <= static_cast<uint64_t>(entry.bytes) / least; };
  if (header.tensors != static_cast<uint64_t>(tensors) || header.boxes != static_cast<uint64_t>(boxes) ||
      !fits(header.tensors, sizeof(TensorHeader)) || !fits(header.boxes, sizeof(BoxHeader)) ||
      !fits(header.chunks, sizeof(uint64_t))) {
    in.corrupt(cat("its header states ", header.tensors, " tensors, ", header.boxes, " boxes and ", header.chunks,
                   " chunks, the manifest states ", tensors, " and ", boxes, ", in ", entry.bytes, " bytes"));
  }
  manifest.boxes.reserve(header.boxes);
  manifest.places.reserve(header.boxes);
  manifest.first_chunk.reserve(header.boxes);
  manifest.chunk_xxh3.reserve(header.chunks);
  manifest.logical_xxh3.reserve(header.tensors);
  std::string name;
  std::array<int64_t, layout::kMaxAxes> shape, offset, extent;
  std::vector<uint64_t> chunks;
  for (int64_t t = 0; t < tensors; ++t) {
    TensorHeader head;
    in.get(&head, sizeof head);
    if (head.role >= core::kNumTensorRoles || head.dtype > static_cast<uint8_t>(core::DType::kBool) ||
        (head.dim_bytes != 4 && head.dim_bytes != 8) || head.zero != 0 || head.zero_too != 0) {
      in.corrupt(cat("tensor ", t, ": its header is invalid"));
    }
    if (head.axes > layout::kMaxAxes) {
      in.corrupt(cat("tensor ", t, ": ", int{head.axes}, " axes; a tensor has at most ", layout::kMaxAxes));
    }
    in.get(shape.data(), head.axes * sizeof(int64_t));
    name.resize(head.name_bytes);
    in.get(name.data(), name.size());
    const auto dtype = static_cast<core::DType>(head.dtype);
    int64_t elements = 1;
    for (size_t axis = 0; axis < head.axes; ++axis) {
      if (shape[axis] < 0 || shape[axis] > int64_t{1} << 48 ||
          __builtin_mul_overflow(elements, std::max<int64_t>(shape[axis], 1), &elements) ||
          elements > int64_t{1} << 58) {
        in.corrupt(cat("tensor ", t, ": its shape is too large"));
      }
    }
    const int32_t tensor = add_listed_tensor(manifest, name, static_cast<core::TensorRole>(head.role), dtype,
                                             {shape.data(), head.axes}, head.logical_xxh3, path);
    for (uint32_t b = 0; b < head.boxes; ++b) {
      BoxHeader box;
      const std::byte* record = in.take(sizeof box + size_t{2} * head.axes * head.dim_bytes);
      std::memcpy(&box, record, sizeof box);
      record += sizeof box;
      int64_t size = core::size_of(dtype);
      for (int64_t* dims : {offset.data(), extent.data()}) {
        for (size_t axis = 0; axis < head.axes; ++axis, record += head.dim_bytes) {
          uint64_t value = 0;
          std::memcpy(&value, record, head.dim_bytes);
          if (value > static_cast<uint64_t>(shape[axis])) in.corrupt(cat(name, ": box ", b, " is outside the tensor"));
          dims[axis] = static_cast<int64_t>(value);
        }
      }
      for (size_t axis = 0; axis < head.axes; ++axis) size *= extent[axis];
      if (chunks_in(size) > in.left() / 8) in.corrupt(cat(name, ": it ends within the hashes of box ", b));
      chunks.resize(static_cast<size_t>(chunks_in(size)));
      in.get(chunks.data(), chunks.size() * sizeof(uint64_t));
      if (box.at > INT64_MAX || box.copy < BoxPlace::kPacked)
        in.corrupt(cat(name, ": box ", b, " has an invalid offset"));
      add_listed_box(manifest, tensor, {offset.data(), head.axes}, {extent.data(), head.axes}, box.file & ~kCompressed,
                     box.copy, static_cast<int64_t>(box.at), chunks, (box.file & kCompressed) != 0, path);
    }
  }
  if (in.left() != 0 || manifest.boxes.size() != header.boxes || manifest.chunk_xxh3.size() != header.chunks) {
    in.corrupt(cat("it holds ", manifest.boxes.size(), " boxes, followed by ", in.left(), " unexpected bytes"));
  }
  if (const uint64_t seen = in.finish(); seen != entry.xxh3) {
    in.corrupt(cat("it hashes to ", core::hex16(seen), " but the manifest says ", core::hex16(entry.xxh3),
                   ": it was changed or damaged"));
  }
}

}  // namespace ms::ckpt::detail
