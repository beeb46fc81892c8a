#include "core/io/scratch_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/io/file.h"

namespace ms::core {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr uintptr_t kMemoryAlignment = 512;

// O_TMPFILE never gives it a name. Elsewhere it has one for a moment.
int open_nameless(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string name = folder + "/.msuite.scratch-XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

ScratchFile::ScratchFile(const std::string& folder) : folder_(folder), fd_(open_nameless(folder)) {
  if (fd_ < 0) {
    throw Error(errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
                cat("cannot create a file in ", folder, ": ", std::strerror(errno)));
  }
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) return;
  // What the disk wants of memory shows only at a write.
  piece_.need(kPieceBytes);
  const auto refuses = [&](const std::byte* memory) {
    return ::pwrite(fd_, memory, kBlockBytes, 0) < 0 && errno == EINVAL;
  };
  copies_ = refuses(piece_.data() + kMemoryAlignment);
  direct_ = !copies_ || !refuses(piece_.data());
  if (!direct_) (void)::fcntl(fd_, F_SETFL, flags);
}

ScratchFile::~ScratchFile() { ::close(fd_); }

bool ScratchFile::is_in_memory() const {
  struct statfs status {};
  if (::fstatfs(fd_, &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

void ScratchFile::fail(const char* what, int64_t size_bytes, int error) const {
  throw Error(ErrorCode::kIo,
              cat("cannot ", what, " ", size_bytes, " bytes of a file in ", folder_, ": ", std::strerror(error)));
}

void ScratchFile::reserve(int64_t size_bytes) {
  if (size_bytes <= 0) return;
  int error = 0;
  do {
    error = file_ops().fallocate(fd_, size_bytes);
  } while (error == EINTR);
  if (error != 0 && error != EOPNOTSUPP && error != EINVAL) fail("reserve", size_bytes, error);
}

void ScratchFile::write_all(std::span<const std::byte> bytes, int64_t offset) {
  bool tried_again = false;
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n =
        file_ops().pwrite(fd_, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    // Past the cache, a short write can go on from the end of a block only.
    const ssize_t usable = direct_ && n > 0 ? n / kBlockBytes * kBlockBytes : n;
    if (usable == 0 && n > 0 && !std::exchange(tried_again, true)) continue;  // the next one says why
    if (usable <= 0) fail("write", static_cast<int64_t>(bytes.size()), n < 0 ? errno : EIO);
    done += static_cast<size_t>(usable);
  }
}

void ScratchFile::read_all(std::span<std::byte> out, int64_t offset) {
  for (size_t done = 0; done < out.size();) {
    const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", static_cast<int64_t>(out.size()), errno);
    if (n == 0) {
      throw Error(ErrorCode::kCorruptData,
                  cat("a file in ", folder_, " ends at byte ", offset + static_cast<int64_t>(done), ", expected ",
                      out.size(), " bytes from ", offset, ". Was it truncated while in use?"));
    }
    done += static_cast<size_t>(n);
  }
}

size_t ScratchFile::straight_bytes(const std::byte* memory, size_t size_bytes) const {
  if (!direct_) return size_bytes;
  if (copies_ || reinterpret_cast<uintptr_t>(memory) % kMemoryAlignment != 0) return 0;
  return size_bytes / kBlockBytes * kBlockBytes;
}

void ScratchFile::write(std::span<const std::byte> bytes, int64_t offset) {
  MS_CHECK(offset % kBlockBytes == 0, "offset ", offset);
  size_t done = straight_bytes(bytes.data(), bytes.size());
  write_all(bytes.first(done), offset);
  while (done < bytes.size()) {
    const auto piece = bytes.subspan(done, std::min(kPieceBytes, bytes.size() - done));
    const auto padded = static_cast<size_t>(blocks_bytes(static_cast<int64_t>(piece.size())));
    piece_.need(kPieceBytes);
    std::memcpy(piece_.data(), piece.data(), piece.size());
    std::memset(piece_.data() + piece.size(), 0, padded - piece.size());
    write_all({piece_.data(), padded}, offset + static_cast<int64_t>(done));
    done += piece.size();
  }
  if (direct_) return;
  const auto length = static_cast<off_t>(bytes.size());
  constexpr unsigned kAndWait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const bool lost = ::sync_file_range(fd_, offset, length, kAndWait) != 0 && (errno == EIO || errno == ENOSPC);
  if (lost) fail("write", length, errno);  // other errors: the file system does not know the call
  (void)::posix_fadvise(fd_, offset, length, POSIX_FADV_DONTNEED);
}

void ScratchFile::read(std::span<std::byte> out, int64_t offset) {
  MS_CHECK(offset % kBlockBytes == 0, "offset ", offset);
  size_t done = straight_bytes(out.data(), out.size());
  read_all(out.first(done), offset);
  while (done < out.size()) {
    const auto piece = out.subspan(done, std::min(kPieceBytes, out.size() - done));
    piece_.need(kPieceBytes);
    read_all({piece_.data(), static_cast<size_t>(blocks_bytes(static_cast<int64_t>(piece.size())))},
             offset + static_cast<int64_t>(done));
    std::memcpy(piece.data(), piece_.data(), piece.size());
    done += piece.size();
  }
  if (!direct_) (void)::posix_fadvise(fd_, offset, static_cast<off_t>(out.size()), POSIX_FADV_DONTNEED);
}

}  // namespace ms::core
