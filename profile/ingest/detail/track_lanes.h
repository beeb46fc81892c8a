// Which lanes of the store the tracks of a Perfetto trace are.
//
// Threads are lanes by process and thread id. A track below a thread that has its name, or none, is that thread's lane
// (what overlaps is written so); any other is a lane named by it, one for all tracks of this name in a process. A
// counter's samples lie on the lane of the track above it. Descriptions may come after the events.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profile/ingest/detail/lane_table.h"
#include "profile/store.h"

namespace ms::profile::detail {

class TrackLanes {
 public:
  TrackLanes(RankTrace& trace, LaneTable& lanes) : trace_(trace), lanes_(lanes) {}

  // descriptor: the message. False if it contradicts the format, or says no uuid.
  bool describe(std::string_view descriptor);
  // A number for a track, counted from 0.
  uint32_t index(uint64_t uuid);

  NameId name(uint32_t track) const { return tracks_[track].name; }
  // A sample as it stands -> its value: some counters count on, some in other units.
  double counted(uint32_t track, double sample);

  // When all is described. The lane of what lies on the track; device: of device work, then a lane of its own.
  uint16_t lane(uint32_t track, bool device);
  // Gives a lane that was found otherwise the names of a track.
  void name_lane(uint16_t lane, uint32_t track);

 private:
  static constexpr uint16_t kNoLane = UINT16_MAX;  // LaneTable gives none of this number

  enum class Kind : uint8_t { kPlain, kProcess, kThread, kCounter };
  struct Track {
    uint64_t uuid = 0, parent = 0;  // parent: a uuid, 0 for none
    int64_t pid = 0, tid = 0;
    int64_t multiplier = 1;
    double total = 0;
    NameId name = 0;
    Kind kind = Kind::kPlain;
    bool incremental = false;
  };
  struct Place {
    int64_t process = 0, id = 0;
    NameId name = 0, process_name = 0;
  };

  const Track* parent_of(const Track& track) const;
  Place place(const Track& track);

  RankTrace& trace_;
  LaneTable& lanes_;
  std::vector<Track> tracks_;
  std::unordered_map<uint64_t, uint32_t> by_uuid_;
  std::map<int64_t, NameId> process_names_;
  std::vector<uint16_t> found_[2];  // by track: the lane, host's and device's, kNoLane if not yet looked for
};

}  // namespace ms::profile::detail
