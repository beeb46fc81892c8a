// The meaning of Kineto's categories, and its names for element types and kinds of synchronisation.
#pragma once

#include <optional>
#include <string_view>

#include "profile/store.h"

namespace ms::profile {

// The side of a category, ignoring case. Nullopt for an unknown category: the event's arguments then decide.
std::optional<Side> side_of_category(std::string_view category);

// A name for each side, for files whose categories do not determine it; nullopt for an unknown name.
std::string_view side_name(Side side);
std::optional<Side> side_of_name(std::string_view name);

// "Event Sync" for kEvent, and back; empty for kNone, kNone for any other text.
std::string_view sync_kind_name(SyncKind kind);
SyncKind sync_kind_of_name(std::string_view name);

// Correlations wider than 32 bits are renumbered downwards from the top, in no order; this is the lowest such number.
inline constexpr uint32_t kFirstWideId = UINT32_MAX - 1'000'000'000;
// Whether a device event with this correlation, whose launch is not in the trace, was launched before the recording
// began. Correlations increase with time. first_launch: the lowest correlation of a launch; 0: there are no launches.
inline bool launched_before(uint32_t correlation, uint32_t first_launch) {
  return correlation != 0 && correlation < first_launch && first_launch < kFirstWideId;
}

// "Float" for "fp32", and back; unknown types are returned unchanged.
std::string_view kineto_dtype(std::string_view dtype);
std::string_view own_dtype(std::string_view dtype);

}  // namespace ms::profile
