// A file without a name, for bytes that only this process reads back: however the process ends, nothing is left behind.
//
// It is for what is to leave memory, so it goes past the page cache (O_DIRECT): the cache would hold the same bytes
// again, and each is read back only once. A failing disk then also shows at the write, not at an fsync that nobody
// calls. Where the file system has no O_DIRECT, pages are written out and dropped from the cache at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/io/aligned_buffer.h"

namespace ms::core {

class ScratchFile {
 public:
  // Offsets are multiples of it, and a range takes so much of the file, rounded up.
  static constexpr int64_t kBlockBytes = 4096;
  static int64_t blocks_bytes(int64_t size_bytes) { return (size_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes; }

  // Throws kNotFound if there is no such folder, kIo.
  explicit ScratchFile(const std::string& folder);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  bool is_direct() const { return direct_; }
  bool is_in_memory() const;  // on tmpfs or ramfs
  // So that a full disk is reported now. Throws kIo. Does nothing if the file system cannot.
  void reserve(int64_t size_bytes);
  // bytes, out: of any size; without a copy from 512-byte aligned memory, if the disk can. One thread at a time. Throw
  // kIo, and read() kCorruptData for what was not written.
  void write(std::span<const std::byte> bytes, int64_t offset);
  void read(std::span<std::byte> out, int64_t offset);

 private:
  void write_all(std::span<const std::byte> bytes, int64_t offset);
  void read_all(std::span<std::byte> out, int64_t offset);
  // How much of memory may be passed to the kernel as it is.
  size_t straight_bytes(const std::byte* memory, size_t size_bytes) const;
  [[noreturn]] void fail(const char* what, int64_t size_bytes, int error) const;

  std::string folder_;
  int fd_ = -1;
  bool direct_ = false;
  bool copies_ = false;  // direct, but the disk wants memory aligned to more than 512 bytes
  AlignedBuffer piece_;  // for what must be copied
};

}  // namespace ms::core
