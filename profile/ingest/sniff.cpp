#include "profile/ingest/sniff.h"

#include <algorithm>

#include "core/trace/format.h"
#include "profile/ingest/detail/protobuf.h"
#include "profile/perfetto.h"

namespace ms::profile {
namespace {

// A Perfetto trace begins with a packet: field 1, its length, and then fields, as many of them as are there.
bool begins_with_packet(std::string_view first) {
  detail::Cursor in(first);
  if (first.empty() || in.varint() != (perfetto::kTracePacket << 3 | 2)) return false;
  const uint64_t size = in.varint();
  if (!in.ok() || size < 2) return false;
  const bool cut = size > in.left();
  detail::FieldReader fields(in.take(std::min<uint64_t>(size, in.left())));
  while (fields.next()) {
  }
  return fields.ok() || (cut && fields.left() == 0);
}

}  // namespace

Format sniff(std::string_view first) {
  if (first.starts_with(core::trace::kFileMagic)) return Format::kNative;
  if (first.starts_with("\x1f\x8b")) return Format::kGzip;
  if (first.starts_with("\x28\xb5\x2f\xfd")) return Format::kZstd;
  if (first.starts_with(std::string_view("SQLite format 3\0", 16))) return Format::kSqlite;
  std::string_view text = first;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && (text[start] == '{' || text[start] == '[')) return Format::kChromeJson;
  // All spaces so far: only JSON may begin with more of them than we look at.
  if (start == std::string_view::npos && text.size() >= kSniffBytes - 3) return Format::kChromeJson;
  if (begins_with_packet(first)) return Format::kPerfetto;
  return Format::kUnknown;
}

std::string_view format_name(Format format) {
  switch (format) {
    case Format::kNative:
      return "native";
    case Format::kChromeJson:
      return "chrome_json";
    case Format::kGzip:
      return "gzip";
    case Format::kZstd:
      return "zstd";
    case Format::kSqlite:
      return "sqlite";
    case Format::kPerfetto:
      return "perfetto";
    case Format::kUnknown:
      break;
  }
  return "unknown";
}

}  // namespace ms::profile
