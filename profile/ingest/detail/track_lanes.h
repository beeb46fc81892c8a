// Maps the tracks of a Perfetto trace to the lanes of the store.
//
// Threads are lanes by process and thread id. A track below a thread with the same name, or none, is that thread's lane
// (overlapping slices are written this way); any other track is a lane of its own name, shared by all tracks of this
// name in a process. A counter's samples lie on the lane of its parent track. Descriptors may come after the events.
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

  // descriptor: the message. Returns false if it violates the format, or has no uuid.
  bool describe(std::string_view descriptor);
  // Index of a track, counted from 0.
  uint32_t index(uint64_t uuid);

  NameId name(uint32_t track) const { return tracks_[track].name; }
  // The value of a sample: some counters are incremental, some have other units.
  double counted(uint32_t track, double sample);

  // Call after the last descriptor. The lane of events on the track; device: device work gets a lane of its own.
  uint16_t lane(uint32_t track, bool device);
  // Names a lane that was found by other means after a track.
  void name_lane(uint16_t lane, uint32_t track);

 private:
  static constexpr uint16_t kNoLane = UINT16_MAX;  // LaneTable never returns this number

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
  std::vector<uint16_t> found_[2];  // by track: the lane on the host and device side, kNoLane if not yet resolved
};

}  // namespace ms::profile::detail
