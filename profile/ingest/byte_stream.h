// Byte streams for the trace readers: files, pipes and devices, decompressed while they are read. gzip (several
// members), zstd (several frames) and plain data are told apart by their first bytes, also when nested. Memory is
// bounded whatever sizes the file claims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/wait.h"
#include "profile/import_stats.h"

namespace ms::profile {

// For core::wait_while, as long as it takes to read a block of text: a thread that sleeps meanwhile comes back late.
inline constexpr int kSpinsPerBlock = 10 * core::kSpins;

// Looks at text before the reader of its stream gets to it.
class AheadReader {
 public:
  // Called before read_ahead of the text at this offset, while other threads wait.
  virtual void expect(int64_t offset) = 0;
  // Called in any of the threads that decompress, in several at once. text: the bytes from `offset` of the stream on,
  // as lend() will lend them, with kBehind bytes after them; not to be changed, and valid during the call.
  virtual void read_ahead(std::span<char> text, int64_t offset) = 0;

 protected:
  ~AheadReader() = default;
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Reads up to `size` bytes into `out`, at least one before the end of the stream; at the end it returns 0, also on
  // every later call.
  virtual size_t read(char* out, size_t size) = 0;

  // Streams that already hold their bytes in memory lend them in place, which saves a copy.
  virtual bool lends() const { return false; }
  // The next bytes, at least one before the end of the stream. kBehind bytes after them are readable; from the second
  // loan on, kBefore bytes before them may be overwritten. Valid until the next call of read, or of lend that returns
  // bytes.
  virtual std::span<char> lend() { return {}; }
  static constexpr size_t kBefore = size_t{16} << 10, kBehind = 64;

  // Streams that decompress with several threads call `reader` there, for text that comes after what was lent. Null
  // ends this, and returns when no call is running.
  virtual void lend_ahead(AheadReader* reader) { static_cast<void>(reader); }
  // For the caller that waits for such a call: does a part of these threads' work. False if nothing can be done now.
  virtual bool help() { return false; }

  // Total number of bytes; -1 if it is unknown before the end: pipes, compressed data.
  virtual int64_t size() const { return -1; }
  // A new stream of the same bytes from byte `offset` on, which another thread may read. Null if size() is -1.
  virtual std::unique_ptr<ByteStream> from(int64_t offset) const {
    static_cast<void>(offset);
    return nullptr;
  }
};

// A stream whose first bytes can be looked at before they are read.
class PeekedStream final : public ByteStream {
 public:
  PeekedStream(std::unique_ptr<ByteStream> inner, size_t size);
  // The first `size` bytes; fewer if the stream is shorter.
  std::string_view first() const { return {bytes_.data() + kBefore, size_}; }
  size_t read(char* out, size_t size) override;
  bool lends() const override { return inner_->lends(); }
  std::span<char> lend() override;
  void lend_ahead(AheadReader* reader) override { inner_->lend_ahead(reader); }
  bool help() override { return inner_->help(); }
  int64_t size() const override { return inner_->size(); }
  std::unique_ptr<ByteStream> from(int64_t offset) const override { return inner_->from(offset); }

 private:
  std::unique_ptr<ByteStream> inner_;
  std::vector<char> bytes_;  // the first bytes, with kBefore and kBehind bytes around them
  size_t size_ = 0, at_ = 0;
};

// Opens a file, pipe or device for reading from its current position, decompressed.
//
// Errors of compressed data end the stream and are counted in `stats` (truncated, crc; bytes after the last member:
// trailing_bytes). The threads that decompress write stats, which must outlive the stream.
// threads: with more than one, the caller's included, compressed data is decompressed ahead of the reader. Throws
// kNotFound, kIo.
std::unique_ptr<ByteStream> open_bytes(const std::string& path, ImportStats& stats, int threads);

}  // namespace ms::profile
