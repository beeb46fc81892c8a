#include "core/io/placed_file.h"

#include <filesystem>

namespace ms::core {
namespace {

bool has_size(const std::string& path, int64_t size_bytes) {
  std::error_code absent;
  return std::filesystem::is_regular_file(std::filesystem::symlink_status(path, absent)) &&
         static_cast<int64_t>(std::filesystem::file_size(path, absent)) == size_bytes;
}

}  // namespace

PlacedFile::PlacedFile(const std::string& path, int64_t size_bytes, WritePath write_path, bool keep) {
  if (keep && has_size(path, size_bytes)) {
    file_ = File::open_write(path);
  } else {
    file_ = File::create(path);
    file_.preallocate(size_bytes);
    const std::byte last{};  // sets the final size also if nothing can be preallocated
    if (size_bytes > 0) file_.pwrite({&last, 1}, size_bytes - 1);
  }
  bulk_ = std::make_unique<BulkWriter>(file_, write_path);
}

void PlacedFile::write(std::span<const std::byte> bytes, int64_t offset) {
  BulkWriter::Batch batch(*bulk_);
  bulk_->submit(bytes, offset, batch);
  bulk_->wait(batch);
}

void PlacedFile::finish() {
  bulk_.reset();
  file_.fsync();
  file_.close();
}

}  // namespace ms::core
