// Reads the ZIP container of torch.save: uncompressed entries, found through the central directory.
//
// Everything is checked before use: every range lies inside the file, entries do not overlap, names are unique and do
// not lead upwards ("..").
// Sources: APPNOTE.TXT 6.3 (4.3, the records; 4.5.3, ZIP64), and what PyTorch writes
// (caffe2/serialize/inline_container.cc): sizes and CRC only in the central directory, an extra field that aligns data
// to multiples of 64.
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

// The end record is within this many bytes of the end of a file: its 22 bytes and a comment.
inline constexpr int64_t kZipTailBytes = 22 + 65535;

// An archive in a file: all of it, or a part (a DCP payload).
struct ArchiveRange {
  std::shared_ptr<const core::BulkReader> file;
  int64_t at = 0, bytes = 0;
  std::string where;  // prepended to messages

  // The whole file. Throws kNotFound, kIo.
  static ArchiveRange whole(const std::string& path);
};

class ZipReader {
 public:
  struct Entry {
    std::string name;
    int64_t at = 0;  // offset of its first byte in the archive
    int64_t bytes = 0;
    uint32_t crc32 = 0;  // 0 for a non-empty entry: not written
  };

  // Throws kNotFound, kIo; kCorruptData for a file that is not such an archive, kUnsupported for one that is
  // compressed, encrypted or split.
  explicit ZipReader(ArchiveRange range);
  // For a file that is not an archive, but whose parts are known.
  ZipReader(ArchiveRange range, std::vector<Entry> entries);

  const std::string& where() const { return range_.where; }
  const ArchiveRange& range() const { return range_; }
  const std::vector<Entry>& entries() const { return entries_; }  // in file order
  std::optional<size_t> find(std::string_view name) const;

  // Reads the bytes [offset, offset + out.size()) of an entry. Thread-safe. Throws kIo.
  void read(size_t entry, int64_t offset, std::span<std::byte> out) const;
  // Reads a whole entry and compares it with its CRC, if it has one. Throws kCorruptData, also if it exceeds max_bytes.
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
