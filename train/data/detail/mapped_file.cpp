#include "train/data/detail/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/io/file.h"

namespace ms::train::detail {

MappedFile::MappedFile(const std::string& path) {
  const core::File file = core::File::open_read(path);
  const auto size = static_cast<size_t>(file.size_bytes());
  if (size == 0) return;  // mmap fails for length 0
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (address == MAP_FAILED) {
    throw core::Error(core::ErrorCode::kIo, core::cat("cannot map ", path, " (", size,
                                                      " bytes): ", std::strerror(errno), ". Try --no-mmap-bin-files"));
  }
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace ms::train::detail
