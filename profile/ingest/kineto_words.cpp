#include "profile/ingest/kineto_words.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <utility>

namespace ms::profile {

std::optional<Side> side_of_category(std::string_view category) {
  std::string text(category);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  struct Known {
    std::string_view name;
    Side side;
  };
  constexpr Known kKnown[] = {
      {"cpu_op", Side::kOperator},
      {"operator", Side::kOperator},
      {"user_annotation", Side::kAnnotation},
      {"python_function", Side::kPython},
      {"kernel", Side::kDevice},
      {"mtia_ccp_events", Side::kDevice},
      {"gpu_memcpy", Side::kDeviceCopy},
      {"gpu_memset", Side::kDeviceCopy},
      {"memcpy", Side::kDeviceCopy},
      {"memset", Side::kDeviceCopy},
      {"gpu_user_annotation", Side::kDeviceNoWork},
      {"cuda_profiler_range", Side::kDeviceNoWork},
      {"cuda_sync", Side::kDeviceSync},
      {"cuda_event", Side::kDeviceSync},
      {"runtime", Side::kLaunch},
      {"trace", Side::kPseudo},
      {"none", Side::kPseudo},
      {"cpu_instant_event", Side::kHost},
      {"overhead", Side::kHost},
      {"ac2g", Side::kHost},
      {"async", Side::kHost},
      {"async_cpu_to_gpu", Side::kHost},
      {"async_gpu", Side::kHost},
      {"fwdbwd", Side::kHost},
      {"", Side::kHost},
  };
  for (const Known& known : kKnown) {
    if (text == known.name) return known.side;
  }
  // cuda_runtime, mtia_runtime, xpu_driver, privateuse1_runtime, ...
  if (text.ends_with("_runtime") || text.ends_with("_driver")) return Side::kLaunch;
  return std::nullopt;
}

namespace {

constexpr std::string_view kSides[] = {"host",   "operator",    "annotation",     "python",      "launch",
                                       "device", "device_copy", "device_no_work", "device_sync", "pseudo"};
constexpr std::string_view kSyncKinds[] = {"", "Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event"};

constexpr std::pair<std::string_view, std::string_view> kDtypes[] = {
    {"fp32", "Float"}, {"bf16", "BFloat16"}, {"fp16", "Half"}, {"fp64", "Double"}, {"int8", "Char"},
    {"uint8", "Byte"}, {"int16", "Short"},   {"int32", "Int"}, {"int64", "Long"},  {"bool", "Bool"}};

}  // namespace

std::string_view side_name(Side side) { return kSides[static_cast<size_t>(side)]; }

std::optional<Side> side_of_name(std::string_view name) {
  const auto found = std::find(std::begin(kSides), std::end(kSides), name);
  if (found == std::end(kSides)) return std::nullopt;
  return static_cast<Side>(found - std::begin(kSides));
}

std::string_view sync_kind_name(SyncKind kind) { return kSyncKinds[static_cast<size_t>(kind)]; }

SyncKind sync_kind_of_name(std::string_view name) {
  const auto found = std::find(std::begin(kSyncKinds), std::end(kSyncKinds), name);
  return found == std::end(kSyncKinds) ? SyncKind::kNone : static_cast<SyncKind>(found - std::begin(kSyncKinds));
}

std::string_view kineto_dtype(std::string_view dtype) {
  for (const auto& [ours, theirs] : kDtypes) {
    if (ours == dtype) return theirs;
  }
  return dtype;
}

std::string_view own_dtype(std::string_view dtype) {
  for (const auto& [ours, theirs] : kDtypes) {
    if (theirs == dtype) return ours;
  }
  return dtype;
}

}  // namespace ms::profile
