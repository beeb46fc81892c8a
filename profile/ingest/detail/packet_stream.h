// Splits a stream of bytes into the packets of a Perfetto trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "profile/ingest/byte_stream.h"
#include "profile/ingest/detail/file_issues.h"

namespace ms::profile::detail {

class PacketStream {
 public:
  PacketStream(ByteStream& stream, FileIssues& issues) : stream_(stream), issues_(issues) {}

  // The bytes of the next packet, valid until the next call; nullopt at the end. If the file ends within a packet, or
  // no packet can begin at the position, the stream ends before it, and this is counted. Memory: the largest packet, at
  // most 256 MiB, and never more than the bytes that exist.
  std::optional<std::string_view> next();

  int64_t offset() const { return offset_; }  // of the current packet, or of the end
  bool truncated() const { return truncated_; }

 private:
  bool fill(size_t size);
  std::optional<uint64_t> varint(size_t& at);
  std::nullopt_t cut(std::string_view why);
  std::nullopt_t damaged(std::string_view why);

  ByteStream& stream_;
  FileIssues& issues_;
  std::string window_;
  size_t begin_ = 0, end_ = 0;  // bytes read and not yet returned
  int64_t offset_ = 0;
  bool ended_ = false, truncated_ = false;
};

}  // namespace ms::profile::detail
