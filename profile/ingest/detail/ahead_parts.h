// Reads events of compressed text in the thread that decompresses it: scanning events takes twice the time of
// decompressing them, so that thread would wait for the sequential reader most of the time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "profile/ingest/byte_stream.h"
#include "profile/ingest/detail/event_parts.h"

namespace ms::profile::detail {

class AheadParts final : public EventParts, private AheadReader {
 public:
  // stream: lends. stream and path must outlive this. own: see EventColumns::expect_own.
  AheadParts(ByteStream& stream, const std::string& path, bool own);
  ~AheadParts() override;
  AheadParts(const AheadParts&) = delete;
  AheadParts& operator=(const AheadParts&) = delete;

  std::unique_ptr<ArrayPart> take(int64_t offset) override;

 private:
  struct Piece {
    int64_t begin = 0;  // offset of its first byte
    bool done = false;
    std::unique_ptr<ArrayPart> part;  // done: null if the piece has no usable part
  };

  void read_ahead(std::span<char> text, int64_t offset) override;

  ByteStream& stream_;
  const std::string& path_;
  const bool own_;
  std::atomic<bool> stop_{false};

  std::mutex mutex_;  // guards the members below
  std::condition_variable done_;
  std::deque<Piece> pieces_;
};

}  // namespace ms::profile::detail
