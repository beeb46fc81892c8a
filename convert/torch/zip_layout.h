// Where everything lies in an archive of torch.save whose records are known by name and size: the writer's side of
// zip_reader.h.
//
// Records are stored as they are, each behind a local header with its real size and CRC, and begin at multiples of 64,
// large ones of 4096, by the extra field that PyTorch pads with; ZIP64 fields appear only where 32 bits do not do.
// Nothing depends on the data but the CRCs, so records can be written by position, in any order. Sources:
// APPNOTE.TXT 6.3 (4.3, 4.5.3), PyTorch's caffe2/serialize/inline_container.cc (padding).
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
    int64_t header_at = 0;  // of the archive; the header ends where the data begins
    int64_t at = 0;         // of its data
    int64_t bytes = 0;
  };

  // Behind those that there are.
  void add(std::string name, int64_t bytes);

  const std::vector<Record>& records() const { return records_; }
  int64_t directory_at() const { return end_; }
  int64_t archive_bytes() const;

  std::string header(size_t record, uint32_t crc32) const;
  // The directory and the end record. crc32s: of the records.
  std::string directory(std::span<const uint32_t> crc32s) const;

 private:
  std::vector<Record> records_;
  int64_t end_ = 0;
};

}  // namespace ms::convert
