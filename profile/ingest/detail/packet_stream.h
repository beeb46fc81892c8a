// The packets of a Perfetto trace, one after the other, from a stream of bytes.
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

  // The bytes of the next packet, good until the next call; nothing at the end. A file that ends within a packet, or
  // where no packet can begin, ends before it, and that is counted. Memory: the largest packet, of 256 MiB at most, and
  // never more than there are bytes.
  std::optional<std::string_view> next();

  int64_t offset() const { return offset_; }  // of the packet at hand, or of the end
  bool truncated() const { return truncated_; }

 private:
  bool fill(size_t size);
  std::optional<uint64_t> varint(size_t& at);
  std::nullopt_t cut(std::string_view why);
  std::nullopt_t damaged(std::string_view why);

  ByteStream& stream_;
  FileIssues& issues_;
  std::string window_;
  size_t begin_ = 0, end_ = 0;  // of what was read and not yet given out
  int64_t offset_ = 0;
  bool ended_ = false, truncated_ = false;
};

}  // namespace ms::profile::detail
