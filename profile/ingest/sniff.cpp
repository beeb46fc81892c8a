#include "profile/ingest/sniff.h"

#include <algorithm>

#include "core/trace/format.h"
#include "profile/ingest/detail/protobuf.h"
#include "profile/ingest/router_trace.h"
#include "profile/perfetto.h"

namespace ms::profile {
namespace {

// A Perfetto trace begins with a packet: field 1, its length, then its fields; checked as far as they are available.
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

// An XSpace begins with a plane: field 1, like a Perfetto packet, in which an id may come before field 2, the name:
// "/host:CPU", "/device:TPU:0", "Task Environment". In a packet field 2 is a message, and no field key of a message
// equals the first letter of these names.
bool begins_with_plane(std::string_view first) {
  detail::Cursor in(first);
  if (first.empty() || in.varint() != (1 << 3 | 2)) return false;
  in.varint();  // size of the plane
  uint64_t key = in.varint();
  if (key == (1 << 3 | 0)) {
    in.varint();
    key = in.varint();
  }
  if (!in.ok() || key != (2 << 3 | 2)) return false;
  const uint64_t size = in.varint();
  if (!in.ok() || size > in.left()) return false;
  const std::string_view name = in.take(size);
  return name.starts_with("/host:") || name.starts_with("/device:") || name.starts_with("Task Environment");
}

// True if the first line names the columns that a kernel table must have, in either spelling, quoted or not.
bool is_kernel_table(std::string_view first) {
  const std::string_view header = first.substr(0, first.find('\n'));
  const auto has = [&](std::string_view column) { return header.find(column) != std::string_view::npos; };
  return has(",") && has("Name") && has("Start Time(us)") && has("Duration(us)");
}

}  // namespace

Format sniff(std::string_view first) {
  if (first.starts_with(core::trace::kFileMagic)) return Format::kNative;
  if (first.starts_with("\x1f\x8b")) return Format::kGzip;
  if (first.starts_with("\x28\xb5\x2f\xfd")) return Format::kZstd;
  if (first.starts_with(std::string_view("SQLite format 3\0", 16))) return Format::kSqlite;
  if (is_router_trace(first)) return Format::kRouterTrace;
  std::string_view text = first;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && (text[start] == '{' || text[start] == '[')) return Format::kChromeJson;
  // All sniffed bytes are white space: no format but JSON may begin like this.
  if (start == std::string_view::npos && text.size() >= kSniffBytes - 3) return Format::kChromeJson;
  if (begins_with_plane(first)) return Format::kXPlane;
  if (is_kernel_table(text)) return Format::kKernelTable;
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
    case Format::kXPlane:
      return "xplane";
    case Format::kKernelTable:
      return "kernel_table";
    case Format::kRouterTrace:
      return "router_trace";
    case Format::kUnknown:
      break;
  }
  return "unknown";
}

}  // namespace ms::profile
