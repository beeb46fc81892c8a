// Reads events of compressed text in the threads that decompress it: scanning events takes twice the time of
// decompressing them, so these would wait for the sequential reader most of the time.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "core/wait.h"
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

  // While it waits for the part, the caller helps the stream's threads.
  std::unique_ptr<ArrayPart> take(int64_t offset) override;

 private:
  struct Piece {
    bool done = false;
    std::unique_ptr<ArrayPart> part;  // done: null if the piece has no usable part
  };

  void expect(int64_t offset) override;
  void read_ahead(std::span<char> text, int64_t offset) override;
  void wait_for(const Piece& piece, std::unique_lock<core::SpinMutex>& lock);

  ByteStream& stream_;
  const std::string& path_;
  const bool own_;
  std::atomic<bool> stop_{false};

  core::SpinMutex mutex_;            // guards the members below
  std::map<int64_t, Piece> pieces_;  // by the offset of the first byte
  std::atomic<uint32_t> pieces_done_{0};
};

}  // namespace ms::profile::detail
