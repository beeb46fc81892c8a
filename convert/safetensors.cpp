#include "convert/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <numeric>
#include <tuple>

#include "convert/detail/printable.h"
#include "core/error.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxRank = 64;  // torch's own limit; bounds what a header can make us allocate

struct DTypeRow {
  SafetensorsDType dtype;
  std::string_view name;
  uint64_t bits;
};
constexpr std::array<DTypeRow, 22> kDTypes = {{
    {SafetensorsDType::kBool, "BOOL", 8},
    {SafetensorsDType::kF4, "F4", 4},
    {SafetensorsDType::kF6E2M3, "F6_E2M3", 6},
    {SafetensorsDType::kF6E3M2, "F6_E3M2", 6},
    {SafetensorsDType::kU8, "U8", 8},
    {SafetensorsDType::kI8, "I8", 8},
    {SafetensorsDType::kF8E5M2, "F8_E5M2", 8},
    {SafetensorsDType::kF8E4M3, "F8_E4M3", 8},
    {SafetensorsDType::kF8E8M0, "F8_E8M0", 8},
    {SafetensorsDType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {SafetensorsDType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {SafetensorsDType::kI16, "I16", 16},
    {SafetensorsDType::kU16, "U16", 16},
    {SafetensorsDType::kF16, "F16", 16},
    {SafetensorsDType::kBF16, "BF16", 16},
    {SafetensorsDType::kI32, "I32", 32},
    {SafetensorsDType::kU32, "U32", 32},
    {SafetensorsDType::kF32, "F32", 32},
    {SafetensorsDType::kC64, "C64", 64},
    {SafetensorsDType::kF64, "F64", 64},
    {SafetensorsDType::kI64, "I64", 64},
    {SafetensorsDType::kU64, "U64", 64},
}};

const DTypeRow& row_of(SafetensorsDType dtype) { return kDTypes.at(static_cast<size_t>(dtype)); }

std::string shape_text(std::span<const uint64_t> shape) {
  return cat(std::vector<uint64_t>(shape.begin(), shape.end()));
}

// Size of a tensor; nullopt if a product overflows or the bits do not fill whole bytes.
std::optional<uint64_t> tensor_bytes(SafetensorsDType dtype, std::span<const uint64_t> shape) {
  uint64_t bits = bits_of(dtype);
  uint64_t elements = 1;
  for (uint64_t dim : shape) {
    if (__builtin_mul_overflow(elements, dim, &elements)) return std::nullopt;
  }
  if (__builtin_mul_overflow(bits, elements, &bits) || bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

// A forward window over the header: nlohmann pulls characters through HeaderIterator; `position` counts them.
struct HeaderStream {
  const ReadAt& read;
  uint64_t size;
  uint64_t position = 0;
  uint64_t window_begin = 0;
  std::vector<std::byte> window = {};

  char current() {
    if (position < window_begin || position >= window_begin + window.size()) {
      window_begin = position;
      window.resize(std::min<uint64_t>(64 * 1024, size - position));
      read(8 + position, window);
    }
    return static_cast<char>(window[position - window_begin]);
  }
};

class HeaderIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  explicit HeaderIterator(HeaderStream* stream) : stream_(stream) {}  // null: the end
  char operator*() const { return stream_->current(); }
  HeaderIterator& operator++() {
    ++stream_->position;
    return *this;
  }
  bool operator==(const HeaderIterator& other) const { return at_end() == other.at_end(); }
  bool operator!=(const HeaderIterator& other) const { return !(*this == other); }

 private:
  bool at_end() const { return stream_ == nullptr || stream_->position >= stream_->size; }
  HeaderStream* stream_;
};

}  // namespace

uint64_t bits_of(SafetensorsDType dtype) { return row_of(dtype).bits; }
std::string_view safetensors_dtype_name(SafetensorsDType dtype) { return row_of(dtype).name; }

std::optional<SafetensorsDType> parse_safetensors_dtype(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<core::DType> to_core_dtype(SafetensorsDType dtype) {
  switch (dtype) {
    case SafetensorsDType::kF32:
      return core::DType::kFp32;
    case SafetensorsDType::kBF16:
      return core::DType::kBf16;
    case SafetensorsDType::kF16:
      return core::DType::kFp16;
    case SafetensorsDType::kF64:
      return core::DType::kFp64;
    case SafetensorsDType::kI8:
      return core::DType::kInt8;
    case SafetensorsDType::kU8:
      return core::DType::kUInt8;
    case SafetensorsDType::kI16:
      return core::DType::kInt16;
    case SafetensorsDType::kU16:
      return core::DType::kUInt16;
    case SafetensorsDType::kI32:
      return core::DType::kInt32;
    case SafetensorsDType::kI64:
      return core::DType::kInt64;
    case SafetensorsDType::kBool:
      return core::DType::kBool;
    default:
      return std::nullopt;
  }
}

std::optional<core::DType> to_stored_dtype(SafetensorsDType dtype) {
  switch (dtype) {
    case SafetensorsDType::kU32:
      return core::DType::kUInt32;
    case SafetensorsDType::kU64:
      return core::DType::kUInt64;
    case SafetensorsDType::kC64:
      return core::DType::kComplex64;
    case SafetensorsDType::kF8E4M3:
      return core::DType::kFp8E4M3;
    case SafetensorsDType::kF8E5M2:
      return core::DType::kFp8E5M2;
    case SafetensorsDType::kF8E8M0:
      return core::DType::kFp8E8M0;
    case SafetensorsDType::kF8E4M3Fnuz:
      return core::DType::kFp8E4M3Fnuz;
    case SafetensorsDType::kF8E5M2Fnuz:
      return core::DType::kFp8E5M2Fnuz;
    default:
      return to_core_dtype(dtype);
  }
}

SafetensorsDType from_core_dtype(core::DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (to_stored_dtype(row.dtype) == dtype) return row.dtype;
  }
  throw Error(ErrorCode::kUnsupported, cat("safetensors has no type for ", core::dtype_name(dtype)));
}

SafetensorsHeader::Tensor SafetensorsHeader::operator[](size_t index) const {
  const Record& record = records_.at(index);
  return {name_of(record), record.dtype, std::span(dims_).subspan(record.shape_offset, record.rank), record.begin,
          record.end};
}

std::optional<size_t> SafetensorsHeader::find(std::string_view name) const {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t index, std::string_view wanted) { return name_of(records_[index]) < wanted; });
  if (at == by_name_.end() || name_of(records_[*at]) != name) return std::nullopt;
  return *at;
}

// nlohmann's SAX interface for exactly the nesting that the format allows: {name: {key: string | [unsigned...]}}.
class SafetensorsHeaderParser {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  explicit SafetensorsHeaderParser(std::string_view where) : where_(where) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("true or false"); }
  bool number_integer(number_integer_t) { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t& text) { return unexpected(cat("the number ", printable(text))); }
  bool binary(binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) {
    if (depth_ != 3) return unexpected(cat("the number ", value));
    if (key_ == Key::kShape) {
      if (header_.dims_.size() - record_.shape_offset == kMaxRank) {
        throw Error(ErrorCode::kUnsupported, cat(entry(), " has more than ", kMaxRank, " axes"));
      }
      header_.dims_.push_back(value);
    } else {
      if (offsets_ == 2) fail(cat(entry(), ": data_offsets has more than 2 numbers"));
      (offsets_ == 0 ? record_.begin : record_.end) = value;
      ++offsets_;
    }
    return true;
  }

  bool string(string_t& value) {
    if (depth_ == 2 && in_metadata_) {
      if (!header_.metadata_.emplace(metadata_key_, value).second)
        fail(cat("duplicate key ", printable(metadata_key_)));
      return true;
    }
    if (depth_ != 2 || key_ != Key::kDType) return unexpected("a string");
    const auto dtype = parse_safetensors_dtype(value);
    if (!dtype) fail(cat(entry(), ": unknown dtype ", printable(value)));
    record_.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) {
    if (depth_ == 0) {
      depth_ = 1;
      return true;
    }
    if (depth_ != 1) return unexpected("an object");
    depth_ = 2;
    seen_ = 0;
    return true;
  }

  bool key(string_t& name) {
    if (depth_ == 1) {
      in_metadata_ = name == "__metadata__";
      if (in_metadata_ && seen_metadata_) fail("duplicate key \"__metadata__\"");
      seen_metadata_ |= in_metadata_;
      record_ = {};
      record_.name_offset = static_cast<uint32_t>(header_.names_.size());
      record_.name_size = static_cast<uint32_t>(name.size());
      if (!in_metadata_) header_.names_ += name;
      return true;
    }
    if (in_metadata_) {
      metadata_key_ = name;
      return true;
    }
    if (name == "dtype") {
      key_ = Key::kDType;
    } else if (name == "shape") {
      key_ = Key::kShape;
    } else if (name == "data_offsets") {
      key_ = Key::kOffsets;
    } else {
      fail(cat(entry(), ": unknown key ", printable(name)));
    }
    const unsigned bit = 1u << static_cast<unsigned>(key_);
    if ((seen_ & bit) != 0) fail(cat(entry(), ": duplicate key ", printable(name)));
    seen_ |= bit;
    return true;
  }

  bool start_array(std::size_t) {
    if (depth_ != 2 || in_metadata_ || key_ == Key::kDType) return unexpected("an array");
    depth_ = 3;
    offsets_ = 0;
    if (key_ == Key::kShape) record_.shape_offset = static_cast<uint32_t>(header_.dims_.size());
    return true;
  }

  bool end_array() {
    depth_ = 2;
    if (key_ == Key::kShape) record_.rank = static_cast<uint8_t>(header_.dims_.size() - record_.shape_offset);
    if (key_ == Key::kOffsets && offsets_ != 2) fail(cat(entry(), ": data_offsets has ", offsets_, " numbers, not 2"));
    return true;
  }

  bool end_object() {
    --depth_;
    if (depth_ == 1 && !in_metadata_) {
      if (seen_ != 7) fail(cat(entry(), " lacks dtype, shape or data_offsets"));
      header_.records_.push_back(record_);
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
    fail(cat("the header is not valid JSON: ", printable(error.what())));
  }

  SafetensorsHeader finish(uint64_t header_size_bytes, uint64_t file_size_bytes);

  [[noreturn]] void fail(const std::string& text) const {
    throw Error(ErrorCode::kCorruptData, cat(where_, ": ", text));
  }

 private:
  enum class Key { kDType, kShape, kOffsets };

  std::string entry() const {
    if (in_metadata_) return "__metadata__";
    return cat("tensor ", printable(std::string_view(header_.names_).substr(record_.name_offset, record_.name_size)));
  }
  [[noreturn]] bool unexpected(const std::string& what) const {
    fail(depth_ < 2 && record_.name_size == 0 ? cat("the header has ", what, " where it must not")
                                              : cat(entry(), " has ", what, " where it must not"));
  }

  std::string_view where_;
  SafetensorsHeader header_;
  SafetensorsHeader::Record record_;
  int depth_ = 0;
  int offsets_ = 0;
  unsigned seen_ = 0;
  Key key_ = Key::kDType;
  bool in_metadata_ = false;
  bool seen_metadata_ = false;
  std::string metadata_key_;
};

SafetensorsHeader SafetensorsHeaderParser::finish(uint64_t header_size_bytes, uint64_t file_size_bytes) {
  SafetensorsHeader& header = header_;
  header.data_start_ = 8 + header_size_bytes;
  auto& records = header.records_;
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name_offset) < std::tie(b.begin, b.end, b.name_offset);
  });
  header.by_name_.resize(records.size());
  std::iota(header.by_name_.begin(), header.by_name_.end(), 0u);
  std::sort(header.by_name_.begin(), header.by_name_.end(),
            [&](uint32_t a, uint32_t b) { return header.name_of(records[a]) < header.name_of(records[b]); });
  for (size_t i = 1; i < records.size(); ++i) {
    const std::string_view name = header.name_of(records[header.by_name_[i]]);
    if (name == header.name_of(records[header.by_name_[i - 1]])) fail(cat("duplicate key ", printable(name)));
  }
  for (size_t i = 0; i < records.size(); ++i) {
    const SafetensorsHeader::Tensor tensor = header[i];
    const auto name = [&] { return cat("tensor ", printable(tensor.name)); };
    const auto need = tensor_bytes(tensor.dtype, tensor.shape);
    if (!need) {
      fail(cat(name(), ": ", safetensors_dtype_name(tensor.dtype), " ", shape_text(tensor.shape),
               " is not a whole number of bytes below 2^64"));
    }
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != *need) {
      fail(cat(name(), ": data_offsets [", tensor.begin, ", ", tensor.end, "] but ",
               safetensors_dtype_name(tensor.dtype), " ", shape_text(tensor.shape), " takes ", *need, " bytes"));
    }
  }
  uint64_t end = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].begin != end) {
      fail(cat("tensor ", printable(header[i].name), " begins at byte ", records[i].begin, " of the data, expected ",
               end, records[i].begin < end ? " (two tensors overlap)" : " (a gap before it)"));
    }
    end = records[i].end;
  }
  if (end != file_size_bytes - header.data_start_) {
    fail(cat("the tensors end at byte ", end, " of the data, the file at ", file_size_bytes - header.data_start_,
             end < file_size_bytes - header.data_start_ ? " (trailing bytes)" : " (truncated)"));
  }
  return std::move(header_);
}

SafetensorsHeader parse_safetensors_header(uint64_t file_size_bytes, const ReadAt& read, std::string_view where) {
  SafetensorsHeaderParser parser(where);
  if (file_size_bytes < 8)
    parser.fail(cat("the file has ", file_size_bytes, " bytes; a safetensors file has at least 8"));
  std::array<std::byte, 8> length;
  read(0, length);
  uint64_t header_size = 0;
  for (size_t i = 0; i < 8; ++i) header_size |= static_cast<uint64_t>(length[i]) << (8 * i);
  if (header_size > kMaxHeaderBytes) {
    parser.fail(cat("the header claims ", header_size, " bytes; the format allows ", kMaxHeaderBytes));
  }
  if (header_size > file_size_bytes - 8) {
    parser.fail(cat("the header claims ", header_size, " bytes but ", file_size_bytes - 8, " follow (truncated?)"));
  }
  HeaderStream stream{read, header_size};
  if (header_size == 0 || stream.current() != '{') parser.fail("the header does not begin with '{'");
  nlohmann::json::sax_parse(HeaderIterator(&stream), HeaderIterator(nullptr), &parser,
                            nlohmann::json::input_format_t::json, /*strict=*/false);
  for (; stream.position < header_size; ++stream.position) {
    if (stream.current() != ' ') parser.fail("the header continues after its closing brace (only spaces may follow)");
  }
  return parser.finish(header_size, file_size_bytes);
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  header_ = parse_safetensors_header(
      static_cast<uint64_t>(file_.size_bytes()),
      [&](uint64_t offset, std::span<std::byte> out) { file_.read(out, static_cast<int64_t>(offset)); }, path);
}

void SafetensorsReader::read(uint64_t offset_bytes, std::span<std::byte> out) const {
  file_.read(out, static_cast<int64_t>(header_.data_start() + offset_bytes));
}

uint64_t SafetensorsEntry::size_bytes() const {
  const auto bytes = tensor_bytes(dtype, shape);
  MS_CHECK(bytes.has_value(), "size of ", name);
  return *bytes;
}

SafetensorsPreamble make_safetensors_preamble(std::span<const SafetensorsEntry> entries,
                                              const std::map<std::string, std::string>& metadata) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (entries[a].dtype != entries[b].dtype) return entries[a].dtype > entries[b].dtype;
    return entries[a].name < entries[b].name;
  });
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) {
    throw Error(ErrorCode::kInvalidArgument, cat("safetensors: two tensors are named ", printable(*twin)));
  }

  SafetensorsPreamble preamble;
  preamble.data_offsets.resize(entries.size());
  std::string json = "{";
  const auto separate = [&] {
    if (json.size() > 1) json += ',';
  };
  if (!metadata.empty()) json += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  uint64_t end = 0;
  for (size_t index : order) {
    const SafetensorsEntry& entry = entries[index];
    if (entry.name == "__metadata__") {
      throw Error(ErrorCode::kInvalidArgument, "safetensors: a tensor cannot be named __metadata__");
    }
    separate();
    json +=
        cat(nlohmann::json(entry.name).dump(), R"(:{"dtype":")", safetensors_dtype_name(entry.dtype), R"(","shape":)",
            nlohmann::json(entry.shape).dump(), R"(,"data_offsets":[)", end, ",", end + entry.size_bytes(), "]}");
    preamble.data_offsets[index] = end;
    end += entry.size_bytes();
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  preamble.bytes.resize(8);
  for (size_t i = 0; i < 8; ++i) preamble.bytes[i] = static_cast<char>(json.size() >> (8 * i));
  preamble.bytes += json;
  for (uint64_t& offset : preamble.data_offsets) offset += preamble.bytes.size();
  preamble.file_size_bytes = preamble.bytes.size() + end;
  return preamble;
}

}  // namespace ms::convert
