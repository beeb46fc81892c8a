#include "profile/ingest/detail/packet_stream.h"

#include <algorithm>
#include <cstring>

#include "profile/ingest/detail/cursor.h"
#include "profile/perfetto.h"

namespace ms::profile::detail {
namespace {

constexpr size_t kReadBytes = size_t{1} << 18;
constexpr uint64_t kMaxPacketBytes = uint64_t{1} << 28;
constexpr size_t kMaxVarintBytes = 10;

}  // namespace

// Reads until `size` bytes are available, or the stream has ended.
bool PacketStream::fill(size_t size) {
  while (end_ - begin_ < size && !ended_) {
    if (begin_ > 0) std::memmove(window_.data(), window_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (window_.size() - end_ < kReadBytes) window_.resize(std::max(end_ + kReadBytes, 2 * window_.size()));
    const size_t got = stream_.read(window_.data() + end_, window_.size() - end_);
    ended_ = got == 0;
    end_ += got;
  }
  return end_ - begin_ >= size;
}

// at: offset from begin_ where the varint begins; set to its end. Nullopt if it does not end.
std::optional<uint64_t> PacketStream::varint(size_t& at) {
  fill(at + kMaxVarintBytes);
  Cursor in(std::string_view(window_).substr(begin_ + at, end_ - begin_ - at));
  const size_t left = in.left();
  const uint64_t value = in.varint();
  if (!in.ok()) return std::nullopt;
  at += left - in.left();
  return value;
}

std::nullopt_t PacketStream::cut(std::string_view why) {
  truncated_ = true;
  issues_.add("truncated", offset_, why);
  begin_ = end_;
  ended_ = true;
  return std::nullopt;
}

std::nullopt_t PacketStream::damaged(std::string_view why) {
  issues_.add("damaged_chunk", offset_, why);
  begin_ = end_;
  ended_ = true;
  return std::nullopt;
}

std::optional<std::string_view> PacketStream::next() {
  while (fill(1)) {
    size_t at = 0;
    const std::optional<uint64_t> tag = varint(at);
    if (!tag) return end_ - begin_ < kMaxVarintBytes ? cut("ends within a packet") : damaged("no packet begins here");
    size_t skipped = 0;
    switch (*tag & 7) {
      case 0:
        if (!varint(at)) return cut("ends within a field");
        break;
      case 1:
        skipped = 8;
        break;
      case 5:
        skipped = 4;
        break;
      case 2: {
        const std::optional<uint64_t> size = varint(at);
        if (!size && end_ - begin_ - at < kMaxVarintBytes) return cut("ends within a packet");
        if (!size || *size > kMaxPacketBytes)
          return damaged("impossible packet size; the rest of the file is not read");
        if (!fill(at + *size)) return cut("ends within a packet");
        const std::string_view packet = std::string_view(window_).substr(begin_ + at, *size);
        begin_ += at + *size;
        offset_ += static_cast<int64_t>(at + *size);
        if (*tag >> 3 == perfetto::kTracePacket) return packet;
        continue;
      }
      default:
        return damaged("no packet begins here; the rest of the file is not read");
    }
    if (!fill(at + skipped)) return cut("ends within a field");
    begin_ += at + skipped;
    offset_ += static_cast<int64_t>(at + skipped);
  }
  return std::nullopt;
}

}  // namespace ms::profile::detail
