// Reads safetensors files, checking everything, and lays them out so that their bytes equal the reference writer's.
//
//   0      u64  N, length of the header
//   8      N bytes of JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...},
//          optionally "__metadata__": {string: string}; may end in spaces
//   8 + N  the data, to the end of the file; data_offsets count from here
//
// Source: the format's public description (huggingface/safetensors, README and safetensors/src/tensor.rs). One rule is
// stricter: a duplicate key is refused, since two readers could see different files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/io/bulk_reader.h"

namespace ms::convert {

// In the reference's order, which also orders the tensors of a written file.
enum class SafetensorsDType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

uint64_t bits_of(SafetensorsDType dtype);
std::string_view safetensors_dtype_name(SafetensorsDType dtype);  // "F32", ...
std::optional<SafetensorsDType> parse_safetensors_dtype(std::string_view name);
std::optional<core::DType> to_core_dtype(SafetensorsDType dtype);  // nullopt: a type that the suite does not compute
                                                                   // with
// Also accepts types that are only copied; nullopt: elements of fractional bytes (F4, F6).
std::optional<core::DType> to_stored_dtype(SafetensorsDType dtype);
SafetensorsDType from_core_dtype(core::DType dtype);

// The checked header of one file; takes about 100 bytes per tensor.
class SafetensorsHeader {
 public:
  struct Tensor {
    std::string_view name;  // only data, never a path; may contain any characters
    SafetensorsDType dtype;
    std::span<const uint64_t> shape;
    uint64_t begin = 0;  // bytes, from data_start()
    uint64_t end = 0;    // exclusive
  };

  size_t size() const { return records_.size(); }
  Tensor operator[](size_t index) const;  // in file order: by (begin, end)
  std::optional<size_t> find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  uint64_t data_start() const { return data_start_; }  // 8 + N

 private:
  friend class SafetensorsHeaderParser;
  struct Record {
    uint64_t begin = 0, end = 0;
    uint32_t name_offset = 0, name_size = 0;  // in names_
    uint32_t shape_offset = 0;                // in dims_
    uint8_t rank = 0;
    SafetensorsDType dtype = SafetensorsDType::kU8;
  };
  std::string_view name_of(const Record& record) const {
    return std::string_view(names_).substr(record.name_offset, record.name_size);
  }

  std::string names_;
  std::vector<uint64_t> dims_;
  std::vector<Record> records_;
  std::vector<uint32_t> by_name_;  // indices into records_, sorted by name
  std::map<std::string, std::string> metadata_;
  uint64_t data_start_ = 0;
};

// Fills `out` with the bytes at `offset`; the range is inside the file.
using ReadAt = std::function<void(uint64_t offset, std::span<std::byte> out)>;

// Reads and checks a header, in this order: sizes, UTF-8 and JSON, duplicate and unknown keys, dtypes and shapes,
// ranges, and that the ranges tile the data without gaps, overlaps or trailing bytes. Streams: the JSON is never held
// in memory as a whole. Throws kCorruptData, with `where` first in the message; kUnsupported for a tensor of more than
// 64 axes.
SafetensorsHeader parse_safetensors_header(uint64_t file_size_bytes, const ReadAt& read, std::string_view where);

// An open file. read() is thread-safe.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  void read(uint64_t offset_bytes, std::span<std::byte> out) const;  // offset from data_start()

 private:
  core::BulkReader file_;
  SafetensorsHeader header_;
};

// A tensor of a file to be written; the order in which they are given does not matter.
struct SafetensorsEntry {
  std::string name;
  SafetensorsDType dtype = SafetensorsDType::kF32;
  std::vector<uint64_t> shape;
  uint64_t size_bytes() const;
};

// The bytes before the data, and the offset of each entry's data in the file.
struct SafetensorsPreamble {
  std::string bytes;                   // u64 N and the padded header
  std::vector<uint64_t> data_offsets;  // from the start of the file, in the order of the given entries
  uint64_t file_size_bytes = 0;
};

// Lays a file out as the reference writer does: by descending dtype, then name; the header is padded with spaces to
// align the data to 8 bytes. Throws kInvalidArgument for a duplicate name and for the name "__metadata__".
SafetensorsPreamble make_safetensors_preamble(std::span<const SafetensorsEntry> entries,
                                              const std::map<std::string, std::string>& metadata);

}  // namespace ms::convert
