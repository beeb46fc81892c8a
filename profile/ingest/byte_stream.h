// The bytes of a file, decompressed on the way: gzip (several members), zstd (several frames), or neither, told apart
// by the first bytes, again and again until it is neither. Bounded memory whatever the file says about its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profile/import_stats.h"

namespace ms::profile {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Up to `size` bytes into `out`, at least one unless the stream has ended: 0 then, and from then on.
  virtual size_t read(char* out, size_t size) = 0;

  // Streams that hold bytes in memory lend them where they lie, so that nobody copies them.
  virtual bool lends() const { return false; }
  // The next bytes, at least one unless the stream has ended. kBehind bytes after them can be read, and from the second
  // loan on kBefore bytes in front of them be overwritten. Good until the next call of read, or of lend that gives
  // more.
  virtual std::span<char> lend() { return {}; }
  static constexpr size_t kBefore = size_t{16} << 10, kBehind = 64;

  // Bytes altogether; -1 where only the end tells: pipes, packed bytes.
  virtual int64_t size() const { return -1; }
  // The same bytes from byte `offset` on, for a reader of its own, also in another thread. Null where size() is -1.
  virtual std::unique_ptr<ByteStream> from(int64_t offset) const {
    static_cast<void>(offset);
    return nullptr;
  }
};

// Gives back what was looked at first.
class PeekedStream final : public ByteStream {
 public:
  PeekedStream(std::unique_ptr<ByteStream> inner, size_t size);
  // Of `size` bytes; fewer if there are no more.
  std::string_view first() const { return {bytes_.data() + kBefore, size_}; }
  size_t read(char* out, size_t size) override;
  bool lends() const override { return inner_->lends(); }
  std::span<char> lend() override;
  int64_t size() const override { return inner_->size(); }
  std::unique_ptr<ByteStream> from(int64_t offset) const override { return inner_->from(offset); }

 private:
  std::unique_ptr<ByteStream> inner_;
  std::vector<char> bytes_;  // the first, with room around them
  size_t size_ = 0, at_ = 0;
};

// A file, pipe or device, read from where it stands, and unpacked.
//
// What is wrong with the packing ends the stream and is counted in `stats` (truncated, crc; bytes behind the last
// member: trailing_bytes). stats is used by the thread that reads, and must live as long as the stream.
// read_ahead: decompresses in a thread of its own. Throws kNotFound, kIo.
std::unique_ptr<ByteStream> open_bytes(const std::string& path, ImportStats& stats, bool read_ahead);

}  // namespace ms::profile
