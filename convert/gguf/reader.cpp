#include "convert/gguf/reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "convert/detail/printable.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

constexpr uint64_t kMaxNameBytes = 4096;
constexpr uint32_t kMaxAxes = 4;  // GGML_MAX_DIMS
constexpr uint32_t kString = 8, kArray = 9, kUint32 = 4;
constexpr int kMaxDepth = 4;  // of nested arrays

// Bytes per value of each type in gguf.h; 0: strings, arrays and unknown types.
uint64_t value_bytes(uint32_t type) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

}  // namespace

std::string gguf_type_name(uint32_t type) {
  constexpr const char* kNames[] = {"f32",  "f16",  "q4_0", "q4_1", "type 4", "type 5", "q5_0", "q5_1",
                                    "q8_0", "q8_1", "q2_K", "q3_K", "q4_K",   "q5_K",   "q6_K", "q8_K"};
  if (type < std::size(kNames)) return kNames[type];
  return type == static_cast<uint32_t>(GgufType::kBF16) ? "bf16" : cat("type ", type);
}

bool GgufReader::Tensor::has_known_type() const {
  switch (gguf_type()) {
    case GgufType::kF32:
    case GgufType::kF16:
    case GgufType::kQ8_0:
    case GgufType::kBF16:
      return true;
  }
  return false;
}

// Reads the header front to back through a buffer.
class GgufReader::Cursor {
 public:
  explicit Cursor(const core::File& file) : file_(file), size_(static_cast<uint64_t>(file.size_bytes())) {}

  template <class T>
  T number() {
    T value;
    take(&value, sizeof value);
    return value;
  }
  std::string name(const char* what) {
    const auto bytes = number<uint64_t>();
    if (bytes > kMaxNameBytes) refuse(cat(what, " of ", bytes, " bytes"));
    std::string text(bytes, '\0');
    take(text.data(), bytes);
    return text;
  }
  void skip(uint64_t bytes) {
    if (bytes > size_ - at_) refuse(cat("a value of ", bytes, " bytes"));
    at_ += bytes;
  }
  void skip_value(uint32_t type, int depth = 0) {
    if (type == kString) return skip(number<uint64_t>());
    if (type != kArray) {
      if (value_bytes(type) == 0) refuse(cat("a value of the unknown type ", type));
      return skip(value_bytes(type));
    }
    const auto inner = number<uint32_t>();
    const auto count = number<uint64_t>();
    if (depth == kMaxDepth) refuse("arrays are nested too deeply");
    const uint64_t each = value_bytes(inner);
    if (each == 0 && inner != kString && inner != kArray) refuse(cat("a value of the unknown type ", inner));
    if (count > (size_ - at_) / std::max<uint64_t>(1, each)) refuse(cat("an array of ", count, " values"));
    if (each > 0) return skip(count * each);
    for (uint64_t i = 0; i < count; ++i) skip_value(inner, depth + 1);
  }
  uint64_t at() const { return at_; }
  uint64_t left() const { return size_ - at_; }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::kCorruptData,
                cat(file_.path(), ": byte ", at_, ": ", what, ", in a file of ", size_, " bytes: not a GGUF file"));
  }

 private:
  void take(void* out, uint64_t bytes) {
    if (bytes > size_ - at_) refuse(cat(bytes, " bytes of its header are missing"));
    auto* to = static_cast<std::byte*>(out);
    while (bytes > 0) {
      if (at_ < begin_ || at_ >= begin_ + buffer_.size()) {
        begin_ = at_;
        buffer_.resize(std::min<uint64_t>(64 << 10, size_ - at_));
        file_.pread(buffer_, static_cast<int64_t>(begin_));
      }
      const uint64_t some = std::min<uint64_t>(bytes, begin_ + buffer_.size() - at_);
      std::memcpy(to, buffer_.data() + (at_ - begin_), some);
      to += some;
      at_ += some;
      bytes -= some;
    }
  }

  const core::File& file_;
  uint64_t size_, at_ = 0, begin_ = 0;
  std::vector<std::byte> buffer_;  // the file's bytes from begin_ on
};

GgufReader::GgufReader(const std::string& path) : file_(core::File::open_read(path)) {
  Cursor cursor(file_);
  if (cursor.number<uint32_t>() != std::bit_cast<uint32_t>(std::array{'G', 'G', 'U', 'F'})) {
    throw Error(ErrorCode::kCorruptData, cat(path, ": not a GGUF file: it does not begin with GGUF"));
  }
  if (const auto version = cursor.number<uint32_t>(); version != 2 && version != 3) {
    throw Error(ErrorCode::kCorruptData, cat(path, ": GGUF version ", version, "; versions 2 and 3 are supported"));
  }
  const auto tensors = cursor.number<uint64_t>(), pairs = cursor.number<uint64_t>();
  read_pairs(cursor, pairs);
  read_tensors(cursor, tensors);
}

void GgufReader::read_pairs(Cursor& cursor, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string key = cursor.name("a key");
    const auto type = cursor.number<uint32_t>();
    if (key == "general.architecture" && type == kString) {
      architecture_ = cursor.name("general.architecture");
    } else if (key == "general.alignment" && type == kUint32) {
      const auto alignment = cursor.number<uint32_t>();
      if (!std::has_single_bit(alignment)) cursor.refuse(cat("an alignment of ", alignment));
      alignment_ = alignment;
    } else {
      cursor.skip_value(type);
    }
  }
}

void GgufReader::read_tensors(Cursor& cursor, uint64_t count) {
  const int64_t file_bytes = file_.size_bytes();
  for (uint64_t i = 0; i < count; ++i) {
    Tensor tensor;
    tensor.name = cursor.name("a tensor's name");
    const auto axes = cursor.number<uint32_t>();
    if (axes > kMaxAxes) cursor.refuse(cat("tensor ", printable(tensor.name), " of ", axes, " axes"));
    tensor.elements = 1;
    for (uint32_t axis = 0; axis < axes; ++axis) {
      const auto length = cursor.number<uint64_t>();
      // No type stores more than 8 elements per byte (1 bit each).
      if (length == 0 || length > static_cast<uint64_t>(8 * file_bytes / tensor.elements)) {
        cursor.refuse(cat("tensor ", printable(tensor.name), " with an axis of ", length));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(length));
      tensor.elements *= static_cast<int64_t>(length);
    }
    tensor.type = cursor.number<uint32_t>();
    const auto offset = cursor.number<uint64_t>();
    if (offset > static_cast<uint64_t>(file_bytes) || offset % static_cast<uint64_t>(alignment_) != 0) {
      cursor.refuse(cat("tensor ", printable(tensor.name), " at ", offset));
    }
    tensor.at = static_cast<int64_t>(offset);
    tensor.again = !by_name_.emplace(tensor.name, tensors_.size()).second;
    tensors_.push_back(std::move(tensor));
  }
  const int64_t data = (static_cast<int64_t>(cursor.at()) + alignment_ - 1) / alignment_ * alignment_;
  for (Tensor& tensor : tensors_) {
    tensor.at += data;
    if (!tensor.has_known_type()) continue;
    const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (tensor.gguf_type() == GgufType::kQ8_0 && row % kQ8Block != 0) {
      cursor.refuse(cat("tensor ", printable(tensor.name), " of q8_0 with rows of ", row));
    }
    if (tensor.at + gguf_bytes(tensor.gguf_type(), tensor.elements) <= file_bytes) continue;
    throw Error(ErrorCode::kCorruptData, cat(path(), ": tensor ", printable(tensor.name), " ends at byte ",
                                             tensor.at + gguf_bytes(tensor.gguf_type(), tensor.elements),
                                             ", but the file has ", file_bytes, ": it is truncated"));
  }
}

const GgufReader::Tensor* GgufReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void GgufReader::read(const Tensor& tensor, int64_t first, int64_t count, std::byte* out) const {
  MS_CHECK(tensor.has_known_type() && first >= 0 && count >= 0 && first + count <= tensor.elements, tensor.name);
  const GgufType type = tensor.gguf_type();
  if (type != GgufType::kQ8_0) {
    const int64_t item = gguf_bytes(type, 1);
    return file_.pread({out, static_cast<size_t>(count * item)}, tensor.at + first * item);
  }
  constexpr int64_t kBlocksAtOnce = 4096;
  std::vector<std::byte> blocks;
  std::vector<float> values;
  for (int64_t end = first + count; first < end;) {
    const int64_t block = first / kQ8Block;
    const int64_t many = std::min(kBlocksAtOnce, (end + kQ8Block - 1) / kQ8Block - block);
    blocks.resize(static_cast<size_t>(many * kQ8BlockBytes));
    values.resize(static_cast<size_t>(many * kQ8Block));
    file_.pread(blocks, tensor.at + block * kQ8BlockBytes);
    dequantize_q8_0(blocks.data(), many * kQ8Block, values.data());
    const int64_t some = std::min(end, (block + many) * kQ8Block) - first;
    std::memcpy(out, values.data() + (first - block * kQ8Block), static_cast<size_t>(some) * sizeof(float));
    out += static_cast<size_t>(some) * sizeof(float);
    first += some;
  }
}

}  // namespace ms::convert
