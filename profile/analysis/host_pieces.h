// Cuts the host threads of a rank into pieces: the innermost event of each thread at every moment near a gap of the
// device.
//
// idle_causes.h uses this to find what the host did while the device was idle. Steps are excluded, because they do not
// say what is done inside them. Operators, API calls, annotations and Python frames nest on their thread.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/analysis/device.h"
#include "profile/column.h"
#include "profile/intervals.h"

namespace ms::profile {

inline constexpr uint32_t kNoEvent = UINT32_MAX;
inline constexpr uint16_t kNoLane = UINT16_MAX;

// [start, end) in ns on the rank's own clock; event, named, place: indices of RankTrace::events, or kNoEvent.
struct HostPiece {
  int64_t start = 0, end = 0;
  uint32_t event = 0;         // the innermost event
  uint32_t named = 0;         // event to report: for a launch call, the nearest operator around it; else `event`
  uint32_t place = kNoEvent;  // place in the program: nearest module, user frame or annotation around it
                              // (including itself), else the outermost operator around it
};

// Of each thread the pieces that overlap or touch an interval of `idle`, the nearest piece before and after each
// interval, and the piece that follows one that overlaps it: a trace has far more pieces than gaps need.
class HostPieces {
 public:
  HostPieces(const RankTrace& trace, const DeviceView& view, const IntervalSet& idle);  // O(n log n)

  const Column<HostPiece>& of_lane(uint16_t lane) const { return pieces_[lane]; }  // by time, not overlapping
  const HostPiece* at(uint16_t lane, int64_t time) const;                          // null: no event
  const HostPiece* after(uint16_t lane, int64_t time) const;  // first piece that starts at `time` or later, or null
  // The thread that runs the steps (without steps, the one with most launches or calls), then the others that launch
  // device work or run the backward pass.
  const std::vector<uint16_t>& work_lanes() const { return work_lanes_; }

 private:
  std::vector<Column<HostPiece>> pieces_;  // by lane
  std::vector<uint16_t> work_lanes_;
};

// Whether a Python frame belongs to the user's program: not a builtin, PyTorch or standard library frame.
bool is_user_frame(std::string_view name);

}  // namespace ms::profile
