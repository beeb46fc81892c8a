// Determines the format of a file from its first bytes, never from its name.
#pragma once

#include <string_view>

namespace ms::profile {

enum class Format {
  kNative,
  kChromeJson,
  kGzip,
  kZstd,
  kSqlite,
  kPerfetto,
  kXPlane,
  kKernelTable,
  kRouterTrace,
  kUnknown
};

inline constexpr size_t kSniffBytes = 64;

// kXPlane: a profile of JAX, TensorFlow or XLA as protobuf. kKernelTable: Ascend's kernel_details.csv, by its header.
// kRouterTrace: choices of routers, or metrics with the load of experts, one JSON object a line (router_trace.h).
// first: the first kSniffBytes of the file (fewer if it is shorter). A UTF-8 BOM and white space before JSON are
// skipped.
Format sniff(std::string_view first);
std::string_view format_name(Format format);  // "native", "chrome_json", ...

}  // namespace ms::profile
