#include "core/io/bulk_writer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/io/detail/bulk_engine.h"

namespace ms::core {
namespace {

using detail::BulkEngine;
using detail::kRequestBytes;

// Smaller writes go through the page cache: a direct request costs more than the copy.
constexpr int64_t kBulkBytes = int64_t{64} << 10;

class BufferedEngine final : public BulkEngine {
 public:
  explicit BufferedEngine(const File& file) : file_(file) {}
  void submit(std::span<const std::byte> bytes, int64_t offset, BulkWriter::Batch&) override {
    file_.pwrite(bytes, offset);
    file_.start_writeback(offset, static_cast<int64_t>(bytes.size()));
  }
  void wait(BulkWriter::Batch&) override {}

 private:
  const File& file_;
};

std::unique_ptr<BulkEngine> make_engine(const File& file, WritePath path) {
  switch (path) {
    case WritePath::kIoUring:
      return detail::make_uring_engine(file);
    case WritePath::kDirect:
      return detail::make_direct_engine(file);
    case WritePath::kBuffered:
      break;
  }
  return detail::make_buffered_engine(file);
}

// A probe file that is removed in every case.
struct ProbeFile {
  explicit ProbeFile(const std::string& directory)
      : path(cat(directory, "/", kProbePrefix, ::getpid(), "-",
                 std::hash<std::thread::id>()(std::this_thread::get_id()))),
        file(File::create(path)) {}
  ~ProbeFile() { ::unlink(path.c_str()); }
  std::string path;
  File file;
};

}  // namespace

namespace detail {

AlignedBlock::AlignedBlock()
    : data_(static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(kDirectAlignment), kCopiedBytes))) {
  if (data_ == nullptr) throw Error(ErrorCode::kOutOfMemory, "cannot allocate a 1 MiB write buffer");
}
AlignedBlock::~AlignedBlock() { std::free(data_); }

std::unique_ptr<BulkEngine> make_buffered_engine(const File& file) { return std::make_unique<BufferedEngine>(file); }

}  // namespace detail

std::string_view write_path_name(WritePath path) {
  constexpr std::string_view kNames[] = {"io_uring", "direct", "buffered"};
  return kNames[static_cast<size_t>(path)];
}

std::optional<WritePath> parse_write_path(std::string_view name) {
  if (name == "auto") return std::nullopt;
  for (const WritePath path : {WritePath::kIoUring, WritePath::kDirect, WritePath::kBuffered}) {
    if (name == write_path_name(path)) return path;
  }
  throw Error(ErrorCode::kInvalidArgument,
              cat("unknown write path \"", name, "\": expected auto, io_uring, direct or buffered"));
}

WritePathChoice choose_write_path(const std::string& directory, std::optional<WritePath> forced) {
  const ProbeFile probe(directory);
  const std::vector<std::byte> block(static_cast<size_t>(2 * kBulkBytes));
  WritePathChoice choice;
  for (const WritePath path : {WritePath::kIoUring, WritePath::kDirect, WritePath::kBuffered}) {
    if (forced && path != *forced) continue;
    try {
      BulkWriter writer(probe.file, path);
      BulkWriter::Batch batch(writer);
      writer.submit(block, 0, batch);
      writer.wait(batch);
      choice.path = path;
      choice.why = cat(write_path_name(path), choice.why.empty() ? "" : ": ", choice.why);
      return choice;
    } catch (const Error& e) {
      if (forced || path == WritePath::kBuffered) throw e.within(cat("writing by ", write_path_name(path)));
      choice.why += cat(choice.why.empty() ? "" : "; ", write_path_name(path), " does not work here: ", e.what());
    }
  }
  return choice;
}

// Time at which the bytes written so far are due; callers sleep until then.
struct BulkWriter::RateLimit {
  using Clock = std::chrono::steady_clock;
  std::mutex mutex;
  Clock::time_point due = Clock::now();
};

BulkWriter::Batch::~Batch() { writer_.engine_->wait(*this); }

BulkWriter::BulkWriter(const File& file, WritePath path, int64_t bytes_per_second)
    : file_(file),
      bytes_per_second_(bytes_per_second),
      engine_(make_engine(file, path)),
      rate_(std::make_unique<RateLimit>()) {}

BulkWriter::~BulkWriter() = default;

void BulkWriter::pace(int64_t bytes) {
  if (bytes_per_second_ <= 0) return;
  RateLimit::Clock::time_point due;
  {
    std::lock_guard lock(rate_->mutex);
    rate_->due = std::max(rate_->due, RateLimit::Clock::now());
    due = rate_->due;
    rate_->due += std::chrono::duration_cast<RateLimit::Clock::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_)));
  }
  std::this_thread::sleep_until(due);
}

void BulkWriter::submit(std::span<const std::byte> bytes, int64_t offset, Batch& batch) {
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t head = std::min(size, (kDirectAlignment - offset % kDirectAlignment) % kDirectAlignment);
  const int64_t body = size < kBulkBytes ? 0 : (size - head) / kDirectAlignment * kDirectAlignment;
  const auto part = [&](int64_t begin, int64_t count) {
    return bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  };
  if (body == 0) {
    pace(size);
    return file_.pwrite(bytes, offset);
  }
  if (head > 0) file_.pwrite(part(0, head), offset);
  const int64_t request = detail::is_aligned(bytes.data() + head) ? kRequestBytes : detail::kCopiedBytes;
  for (int64_t at = head; at < head + body; at += request) {
    const int64_t count = std::min(request, head + body - at);
    pace(count);
    engine_->submit(part(at, count), offset + at, batch);
  }
  if (head + body < size) file_.pwrite(part(head + body, size - head - body), offset + head + body);
}

void BulkWriter::wait(Batch& batch) {
  engine_->wait(batch);
  if (batch.error_ == 0) return;
  throw Error(ErrorCode::kIo, cat("cannot write ", file_.path(), ": ", std::strerror(batch.error_)));
}

}  // namespace ms::core
