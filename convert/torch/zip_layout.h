// Lays out a torch.save archive whose records are known by name and size: the writer's side of zip_reader.h.
//
// Records are stored uncompressed. Each follows a local header with its actual size and CRC. Records start at multiples
// of 64 bytes, large ones at multiples of 4096, padded with the extra field that PyTorch uses; ZIP64 fields are written
// only where 32 bits are too few. Only the CRCs depend on the data, so records can be written by position, in any
// order.
// Sources: APPNOTE.TXT 6.3 (4.3, 4.5.3), PyTorch's caffe2/serialize/inline_container.cc (padding).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ms::convert {

class ZipLayout {
 public:
  struct Record {
    std::string name;
    int64_t header_at = 0;  // offset in the archive; the header ends where the data begins
    int64_t at = 0;         // offset of the data
    int64_t bytes = 0;
  };

  // Appends a record.
  void add(std::string name, int64_t bytes);

  const std::vector<Record>& records() const { return records_; }
  int64_t directory_at() const { return end_; }
  int64_t archive_bytes() const;

  std::string header(size_t record, uint32_t crc32) const;
  // Returns the central directory and the end record. crc32s: one per record.
  std::string directory(std::span<const uint32_t> crc32s) const;

 private:
  std::vector<Record> records_;
  int64_t end_ = 0;
};

}  // namespace ms::convert
