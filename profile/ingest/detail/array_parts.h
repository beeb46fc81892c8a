// Reads an array of events with several threads, each piece into its own columns.
//
// The text from the start of the array is cut into pieces of equal size. The reader of a piece looks for the first
// event that seems to begin in it, and reads up to the first event that begins in the next piece. This can be wrong: a
// cut can lie inside a string that looks like events. A part is therefore used only when the sequential reader, which
// knows where events begin because it has read everything before, arrives at exactly the byte where the part began;
// from the same byte both read the same events. A part that began anywhere else is discarded and read again.
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

#include "profile/ingest/byte_stream.h"
#include "profile/ingest/detail/event_columns.h"

namespace ms::profile::detail {

// Events of one piece of a file. Issues that do not belong to an event are left to the caller who takes the part.
struct ArrayPart {
  ArrayPart(const std::string& path, bool own) : issues(stats, path), columns(trace, issues) {
    if (own) columns.expect_own();
  }

  int64_t begin = -1, end = -1;  // file offsets of the first event and of the end of the last one
  RankTrace trace;
  ImportStats stats;
  FileIssues issues;
  EventColumns columns;
};

class ArrayParts {
 public:
  // stream: must have a known size(). stream and path must outlive this. Bytes from `begin` on are cut into pieces of
  // `piece_bytes`; threads - 1 threads start to read them at once, and the caller is the last one. own: see
  // EventColumns::expect_own.
  ArrayParts(const ByteStream& stream, const std::string& path, int64_t begin, int64_t piece_bytes, int threads,
             bool own = false);
  ~ArrayParts();

  // take() returns null for every offset below this one.
  int64_t next() const { return next_; }
  // The part that begins at byte `offset`, the caller's position; null if there is none. While it waits for the part,
  // the caller reads other pieces; parts that begin before `offset` are discarded. Offsets must not decrease.
  std::unique_ptr<ArrayPart> take(int64_t offset);

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
  int64_t next_ = 0;
  size_t first_ = 0;  // pieces before it are finished

  std::mutex mutex_;  // guards the members below
  std::condition_variable done_;
  std::vector<Piece> pieces_;
  size_t free_ = 0;  // no piece before it is free
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace ms::profile::detail
