// Reads an array of events of a file with several threads: the text from the start of the array is cut into pieces of
// equal size. The reader of a piece reads up to the first event that begins in the next piece (event_parts.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/affinity.h"
#include "profile/ingest/byte_stream.h"
#include "profile/ingest/detail/event_parts.h"

namespace ms::profile::detail {

class ArrayParts final : public EventParts {
 public:
  // stream: must have a known size(). stream and path must outlive this. Bytes from `begin` on are cut into pieces of
  // `piece_bytes`; threads - 1 threads start to read them at once, and the caller is the last one. own: see
  // EventColumns::expect_own.
  ArrayParts(const ByteStream& stream, const std::string& path, int64_t begin, int64_t piece_bytes, int threads,
             bool own = false);
  ~ArrayParts() override;

  // While it waits for the part, the caller reads other pieces.
  std::unique_ptr<ArrayPart> take(int64_t offset) override;

 private:
  struct Piece {
    int64_t begin = 0, end = 0;
    enum : uint8_t { kFree, kTaken, kDone } state = kFree;
    std::unique_ptr<ArrayPart> part;  // kDone: null if the piece has no usable part
  };

  void work();
  void read(size_t piece);
  std::optional<size_t> take_free();

  const ByteStream& stream_;
  const std::string& path_;
  const bool own_;
  size_t first_ = 0;  // pieces before it are finished

  std::mutex mutex_;  // guards the members below
  std::condition_variable done_;
  std::vector<Piece> pieces_;
  size_t free_ = 0;  // no piece before it is free
  std::atomic<bool> stop_{false};
  core::CpuShares cpus_;
  std::vector<std::thread> threads_;
};

}  // namespace ms::profile::detail
