#include "profile/ingest/byte_stream.h"

#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "core/error.h"
#include "profile/ingest/detail/read_ahead.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr size_t kPackedBytes = size_t{64} << 10;  // compressed input per read
constexpr int kMaxWrappings = 4;                   // gzip in zstd in gzip ...

// An open file, shared by all readers of its parts.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) {
      throw Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, cat(path_, ": ", std::strerror(errno)));
    }
    struct stat status {};
    if (::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode)) size_ = status.st_size;
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { ::close(fd_); }

  int64_t size() const { return size_; }  // -1: a pipe or device
  size_t read(char* out, size_t size, int64_t offset) const {
    while (true) {
      const ssize_t got = size_ < 0 ? ::read(fd_, out, size) : ::pread(fd_, out, size, offset);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) throw Error(ErrorCode::kIo, cat(path_, ": read: ", std::strerror(errno)));
    }
  }

 private:
  std::string path_;
  int fd_;
  int64_t size_ = -1;
};

class PlainFile final : public ByteStream {
 public:
  PlainFile(std::shared_ptr<const OpenFile> file, int64_t offset) : file_(std::move(file)), offset_(offset) {}
  size_t read(char* out, size_t size) override {
    const size_t got = file_->read(out, size, offset_);
    offset_ += static_cast<int64_t>(got);
    return got;
  }
  int64_t size() const override { return file_->size(); }
  std::unique_ptr<ByteStream> from(int64_t offset) const override {
    return file_->size() < 0 ? nullptr : std::make_unique<PlainFile>(file_, offset);
  }

 private:
  std::shared_ptr<const OpenFile> file_;
  int64_t offset_;
};

// Common part of both decompressors: input in blocks, positions, and reporting at the end of the stream.
class Packed : public ByteStream {
 protected:
  Packed(std::unique_ptr<ByteStream> inner, const std::string& path, ImportStats& stats)
      : inner_(std::move(inner)), path_(path), stats_(stats), packed_(kPackedBytes) {}

  // False at the end of the file.
  bool refill() {
    offset_ += static_cast<int64_t>(have_);
    have_ = inner_->read(packed_.data(), packed_.size());
    return have_ > 0;
  }
  void say(std::string_view kind, std::string_view what, size_t left) {
    stats_.add(kind, cat(path_, ": byte ", offset_ + static_cast<int64_t>(have_ - left),
                         " of the compressed file, byte ", written_, " of its text: ", what));
  }

  std::unique_ptr<ByteStream> inner_;
  std::string path_;
  ImportStats& stats_;
  std::vector<char> packed_;
  size_t have_ = 0;
  int64_t offset_ = 0, written_ = 0;
  bool ended_ = false;
};

class Gzip final : public Packed {
 public:
  Gzip(std::unique_ptr<ByteStream> inner, const std::string& path, ImportStats& stats)
      : Packed(std::move(inner), path, stats), state_(std::make_unique<inflate_state>()) {
    start_member();
  }
  size_t read(char* out, size_t size) override {
    state_->next_out = reinterpret_cast<uint8_t*>(out);
    state_->avail_out = static_cast<uint32_t>(std::min<size_t>(size, size_t{1} << 30));
    const uint32_t room = state_->avail_out;
    while (!ended_ && state_->avail_out == room) inflate_some();
    written_ += room - state_->avail_out;
    return room - state_->avail_out;
  }

 private:
  void start_member() {
    // isal_inflate_reset keeps the input pointers.
    if (first_member_) {
      isal_inflate_init(state_.get());
      first_member_ = false;
    } else {
      isal_inflate_reset(state_.get());
    }
    state_->crc_flag = ISAL_GZIP_NO_HDR_VER;
    isal_gzip_header_init(&header_);
    in_header_ = true;
  }
  bool more_input() {
    if (state_->avail_in > 0) return true;
    if (!refill()) return false;
    state_->next_in = reinterpret_cast<uint8_t*>(packed_.data());
    state_->avail_in = static_cast<uint32_t>(have_);
    return true;
  }
  void inflate_some() {
    if (state_->block_state == ISAL_BLOCK_FINISH) return next_member();
    const bool input = more_input();
    const uint32_t before_in = state_->avail_in, before_out = state_->avail_out;
    const int status = in_header_ ? read_header() : isal_inflate(state_.get());
    if (status == ISAL_INCORRECT_CHECKSUM) {
      say("crc", "the checksum does not match the data", state_->avail_in);
      state_->block_state = ISAL_BLOCK_FINISH;
    } else if (status < 0) {
      say("truncated", "damaged gzip data", state_->avail_in);
      ended_ = true;
    } else if (!input && state_->block_state != ISAL_BLOCK_FINISH && before_in == state_->avail_in &&
               before_out == state_->avail_out) {
      say("truncated", "the gzip stream ends in the middle", 0);
      ended_ = true;
    }
  }
  // ISA-L 2.30's isal_inflate() with ISAL_GZIP forgets its own header structure when a header comes in two parts, and
  // goes on with whatever is on the stack. Here the structure lives as long as the header.
  int read_header() {
    const int status = isal_read_gzip_header(state_.get(), &header_);
    in_header_ = status == ISAL_END_INPUT;
    return status < 0 ? status : ISAL_DECOMP_OK;
  }
  void next_member() {
    if (!more_input()) {
      ended_ = true;
    } else if (*state_->next_in == 0x1f) {
      start_member();
    } else {
      say("trailing_bytes", "bytes after the last gzip member", state_->avail_in);
      ended_ = true;
    }
  }

  std::unique_ptr<inflate_state> state_;
  isal_gzip_header header_{};
  bool first_member_ = true, in_header_ = true;
};

class Zstd final : public Packed {
 public:
  Zstd(std::unique_ptr<ByteStream> inner, const std::string& path, ImportStats& stats)
      : Packed(std::move(inner), path, stats), context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
    if (context_ == nullptr) throw std::bad_alloc();
  }
  size_t read(char* out, size_t size) override {
    ZSTD_outBuffer to{out, size, 0};
    while (!ended_ && to.pos == 0) decompress_some(to);
    written_ += static_cast<int64_t>(to.pos);
    return to.pos;
  }

 private:
  void decompress_some(ZSTD_outBuffer& to) {
    if (in_.pos == in_.size) {
      if (refill()) {
        in_ = {packed_.data(), have_, 0};
      } else if (!inside_) {
        ended_ = true;
        return;
      } else {
        in_ = {nullptr, 0, 0};
      }
    }
    const size_t before = in_.pos;
    const size_t status = ZSTD_decompressStream(context_.get(), &to, &in_);
    if (ZSTD_isError(status) != 0) {
      const std::string_view what = ZSTD_getErrorName(status);
      const bool behind = !inside_, checksum = what.find("checksum") != std::string_view::npos;
      say(behind ? "trailing_bytes" : checksum ? "crc" : "truncated", what, in_.size - in_.pos);
      ended_ = true;
      return;
    }
    inside_ = status != 0;
    if (in_.size == 0 && to.pos == 0 && before == in_.pos) {
      say("truncated", "the zstd stream ends in the middle", 0);
      ended_ = true;
    }
  }

  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = true;  // a frame has begun and not ended; the file begins with one
};

}  // namespace

PeekedStream::PeekedStream(std::unique_ptr<ByteStream> inner, size_t size)
    : inner_(std::move(inner)), bytes_(kBefore + size + kBehind) {
  while (size_ < size) {
    const size_t got = inner_->read(bytes_.data() + kBefore + size_, size - size_);
    if (got == 0) break;
    size_ += got;
  }
}

size_t PeekedStream::read(char* out, size_t size) {
  if (at_ == size_) return inner_->read(out, size);
  const size_t n = first().substr(at_).copy(out, size);
  at_ += n;
  return n;
}

std::span<char> PeekedStream::lend() {
  if (at_ == size_) return inner_->lend();
  const std::span<char> rest(bytes_.data() + kBefore + at_, size_ - at_);
  at_ = size_;
  return rest;
}

std::unique_ptr<ByteStream> open_bytes(const std::string& path, ImportStats& stats, int threads) {
  std::unique_ptr<ByteStream> stream = std::make_unique<PlainFile>(std::make_shared<OpenFile>(path), 0);
  bool packed = false;
  for (int i = 0; i < kMaxWrappings; ++i) {
    auto peeked = std::make_unique<PeekedStream>(std::move(stream), 16);
    const std::string_view first = peeked->first();
    const bool gzip = first.starts_with("\x1f\x8b"), zstd = first.starts_with("\x28\xb5\x2f\xfd");
    stream = std::move(peeked);
    if (gzip) {
      stream = std::make_unique<Gzip>(std::move(stream), path, stats);
    } else if (zstd) {
      stream = std::make_unique<Zstd>(std::move(stream), path, stats);
    } else {
      break;
    }
    packed = true;
  }
  if (packed && threads > 1) stream = std::make_unique<detail::ReadAhead>(std::move(stream), threads);
  return stream;
}

}  // namespace ms::profile
