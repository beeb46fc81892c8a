// What Kineto's categories mean, and how it calls types of elements and kinds of synchronisation (traces.md 4.2, 4.3).
#pragma once

#include <optional>
#include <string_view>

#include "profile/store.h"

namespace ms::profile {

// The side of a category, any case; nothing for one that is not known: then what the event carries decides.
std::optional<Side> side_of_category(std::string_view category);

// A word for each side, for files whose categories do not say it; nothing for an unknown word.
std::string_view side_name(Side side);
std::optional<Side> side_of_name(std::string_view name);

// "Event Sync" for kEvent, and back; empty for kNone, kNone for any other text.
std::string_view sync_kind_name(SyncKind kind);
SyncKind sync_kind_of_name(std::string_view name);

// Correlations that do not fit into 32 bits are numbered from here on, downwards from the top, in no order.
inline constexpr uint32_t kFirstWideId = UINT32_MAX - 1'000'000'000;
// Whether a device event of this correlation, of which the trace holds no launch, was launched before the recording
// began: ids rise. first_launch: the lowest correlation of a launch; 0: there are no launches.
inline bool launched_before(uint32_t correlation, uint32_t first_launch) {
  return correlation != 0 && correlation < first_launch && first_launch < kFirstWideId;
}

// "Float" for "fp32", and back; what is not known stays as it is.
std::string_view kineto_dtype(std::string_view dtype);
std::string_view own_dtype(std::string_view dtype);

}  // namespace ms::profile
