// The host threads of a rank cut into pieces: the innermost event of each thread at every moment.
//
// For what asks "what did the host do then" (idle_causes.h). Steps are left out: they say nothing about what is done in
// them. Operators, API calls, annotations and Python frames nest on their thread.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/analysis/device.h"

namespace ms::profile {

inline constexpr uint32_t kNoEvent = UINT32_MAX;
inline constexpr uint16_t kNoLane = UINT16_MAX;

// [start, end) in ns of the rank's own clock; event, named, place: indices of RankTrace::events, or kNoEvent.
struct HostPiece {
  int64_t start = 0, end = 0;
  uint32_t event = 0;         // the innermost event
  uint32_t named = 0;         // the event to name: of a launch call, the nearest operator around it; else `event`
  uint32_t place = kNoEvent;  // where in the program: the nearest module, frame of the user's code or annotation around
                              // it (or itself), else the outermost operator around it
};

class HostPieces {
 public:
  HostPieces(const RankTrace& trace, const DeviceView& view);  // O(n log n)

  const std::vector<HostPiece>& of_lane(uint16_t lane) const { return pieces_[lane]; }  // by time, not overlapping
  const HostPiece* at(uint16_t lane, int64_t time) const;                               // null: the thread is silent
  const HostPiece* after(uint16_t lane, int64_t time) const;  // the first that starts at `time` or later, or null
  // The thread that runs the steps (without steps, the one that launches or calls most), then the others that launch
  // device work or run the backward pass.
  const std::vector<uint16_t>& work_lanes() const { return work_lanes_; }

 private:
  std::vector<std::vector<HostPiece>> pieces_;  // by lane
  std::vector<uint16_t> work_lanes_;
};

// Whether a Python frame is of the user's program: not a builtin, PyTorch's, or the standard library's.
bool is_user_frame(std::string_view name);

}  // namespace ms::profile
