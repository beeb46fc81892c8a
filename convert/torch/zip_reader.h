// The ZIP container of torch.save: entries that are stored as they are, found by the central directory.
//
// Believes nothing: every range lies inside the file, entries do not overlap, names are unique and no paths upwards.
// Sources: APPNOTE.TXT 6.3 (4.3, the records; 4.5.3, ZIP64), and what PyTorch writes
// (caffe2/serialize/inline_container.cc): sizes and CRC only in the central directory, an extra field that makes data
// begin at multiples of 64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/io/bulk_reader.h"

namespace ms::convert {

// The last bytes of a file that can hold the end record: its 22 bytes and a comment.
inline constexpr int64_t kZipTailBytes = 22 + 65535;

// Where an archive lies: a file, or a part of one (a DCP payload).
struct ArchiveRange {
  std::shared_ptr<const core::BulkReader> file;
  int64_t at = 0, bytes = 0;
  std::string where;  // begins messages

  // A whole file. Throws kNotFound, kIo.
  static ArchiveRange whole(const std::string& path);
};

class ZipReader {
 public:
  struct Entry {
    std::string name;
    int64_t at = 0;  // of its first byte in the archive
    int64_t bytes = 0;
    uint32_t crc32 = 0;  // 0 with bytes: not written
  };

  // Throws kNotFound, kIo; kCorruptData for what is no such archive, kUnsupported for one that is packed, encrypted or
  // in several parts.
  explicit ZipReader(ArchiveRange range);
  // Of a file that is no such archive, but whose parts are known.
  ZipReader(ArchiveRange range, std::vector<Entry> entries);

  const std::string& where() const { return range_.where; }
  const ArchiveRange& range() const { return range_; }
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of the file
  std::optional<size_t> find(std::string_view name) const;

  // The bytes [offset, offset + out.size()) of an entry. Thread-safe. Throws kIo.
  void read(size_t entry, int64_t offset, std::span<std::byte> out) const;
  // A whole entry, its CRC checked if there is one. Throws kCorruptData, also if it is larger than max_bytes.
  std::string read_all(size_t entry, int64_t max_bytes) const;

 private:
  struct Directory {
    int64_t at = 0, bytes = 0;
    uint64_t entries = 0;
  };
  Directory find_directory() const;
  void read_directory(const Directory& directory);
  void find_data(int64_t end);
  std::string read_text(int64_t at, int64_t size_bytes) const;

  ArchiveRange range_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> by_name_;  // views into entries_
};

}  // namespace ms::convert
