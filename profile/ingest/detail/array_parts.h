// Parts of an array of events that are read at once by several threads, each into columns of its own.
//
// The text from the array on is cut into pieces of equal size. Whoever reads a piece looks for the first event that
// seems to begin in it, and reads from there to the first that begins in the next piece. That may be wrong: a cut can
// lie inside a string that looks like events. So nothing of it is believed until the reader of the whole, which knows
// where events begin since it has read all before, comes to the very byte at which a part began; from the same byte
// both read the same. A part that began anywhere else is thrown away, and read again.
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

// Events of one piece of a file. Issues of the file that are not of its events are left to whom the part is given.
struct ArrayPart {
  ArrayPart(const std::string& path, bool own) : issues(stats, path), columns(trace, issues) {
    if (own) columns.expect_own();
  }

  int64_t begin = -1, end = -1;  // bytes of the file: of the first event, and of what comes behind the last
  RankTrace trace;
  ImportStats stats;
  FileIssues issues;
  EventColumns columns;
};

class ArrayParts {
 public:
  // stream: of which size() is known. It and path must outlive this. Bytes from `begin` on are cut into pieces of
  // `piece_bytes`; threads - 1 threads begin to read them at once, and the caller is the other one. own:
  // EventColumns::expect_own.
  ArrayParts(const ByteStream& stream, const std::string& path, int64_t begin, int64_t piece_bytes, int threads,
             bool own = false);
  ~ArrayParts();

  // The byte before which take() need not be asked.
  int64_t next() const { return next_; }
  // The part that begins at byte `offset`, where the caller has come to; null where there is none. Reads others while
  // it waits for it; those that begin before `offset` are thrown away. Offsets are asked for in rising order.
  std::unique_ptr<ArrayPart> take(int64_t offset);

 private:
  struct Piece {
    int64_t begin = 0, end = 0;
    enum : uint8_t { kFree, kTaken, kDone } state = kFree;
    std::unique_ptr<ArrayPart> part;  // kDone: null if there is nothing to be had
  };

  void work();
  void read(size_t piece);
  std::optional<size_t> take_free();

  const ByteStream& stream_;
  const std::string& path_;
  const bool own_;
  int64_t next_ = 0;
  size_t first_ = 0;  // pieces before it are done with

  std::mutex mutex_;  // of what follows
  std::condition_variable done_;
  std::vector<Piece> pieces_;
  size_t free_ = 0;  // pieces before it are not free
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace ms::profile::detail
