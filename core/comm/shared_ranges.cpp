#include "core/comm/shared_ranges.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"

namespace ms::core {

SharedFile::SharedFile(int64_t size_bytes) {
  if (size_bytes == 0) return;
  const int file = ::memfd_create("msuite mailbox", MFD_CLOEXEC);
  if (file < 0) return;
  const auto size = static_cast<size_t>(size_bytes);
  void* const range = ::ftruncate(file, size_bytes) == 0
                          ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0)
                          : MAP_FAILED;
  if (range == MAP_FAILED) {
    ::close(file);
  } else {
    range_ = {static_cast<std::byte*>(range), size_bytes, file};
  }
}

SharedFile::~SharedFile() {
  if (range_.begin == nullptr) return;
  ::munmap(range_.begin, static_cast<size_t>(range_.size_bytes));
  ::close(range_.file);
}

SharedRanges::SharedRanges(int ranks, int rank, const SharedRange& own)
    : ranges_(static_cast<size_t>(ranks)), rank_(rank) {
  ranges_[static_cast<size_t>(rank)] = own;
}

SharedRanges::~SharedRanges() {
  for (int peer = 0; peer < static_cast<int>(ranges_.size()); ++peer) unmap(peer);
}

bool SharedRanges::map(int peer, const Address& address) {
  MS_CHECK(peer != rank_ && !has(peer), "rank ", peer, " is mapped");
  if (address.file < 0 || address.size_bytes <= 0) return false;
  const std::string path = cat("/proc/", address.pid, "/fd/", address.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  struct stat found {};
  void* range = MAP_FAILED;
  if (::fstat(file, &found) == 0 && found.st_size == address.size_bytes) {
    range = ::mmap(nullptr, static_cast<size_t>(address.size_bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                   file, 0);
  }
  ::close(file);
  if (range == MAP_FAILED) return false;
  ranges_[static_cast<size_t>(peer)] = {static_cast<std::byte*>(range), address.size_bytes, -1};
  return true;
}

void SharedRanges::unmap(int peer) {
  SharedRange& range = ranges_[static_cast<size_t>(peer)];
  if (peer == rank_ || range.begin == nullptr) return;
  ::munmap(range.begin, static_cast<size_t>(range.size_bytes));
  range = {};
}

int64_t SharedRanges::offset_of(const void* data, int64_t size_bytes) const {
  const SharedRange& own = ranges_[static_cast<size_t>(rank_)];
  const auto begin = reinterpret_cast<uintptr_t>(own.begin), at = reinterpret_cast<uintptr_t>(data);
  const auto size = static_cast<uintptr_t>(own.size_bytes);
  if (at < begin || at - begin > size || static_cast<uintptr_t>(size_bytes) > size - (at - begin)) return -1;
  return static_cast<int64_t>(at - begin);
}

}  // namespace ms::core
