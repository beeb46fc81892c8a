// Converts Perfetto track events to the columns of a RankTrace.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profile/ingest/detail/file_issues.h"
#include "profile/ingest/detail/flow_set.h"
#include "profile/ingest/detail/lane_table.h"
#include "profile/ingest/detail/slice_edges.h"
#include "profile/ingest/detail/track_event.h"
#include "profile/ingest/detail/track_lanes.h"
#include "profile/ingest/detail/value_names.h"
#include "profile/store.h"

namespace ms::profile::detail {

class TrackColumns {
 public:
  TrackColumns(RankTrace& trace, FileIssues& issues) : trace_(trace), issues_(issues) {}

  TrackLanes& tracks() { return tracks_; }
  // Adds an event. ts: trace time; offset: of its packet in the file.
  void add(const TrackEvent& event, int64_t ts, int64_t offset);
  int64_t events() const { return events_; }  // slices, instants and samples

  // Call after the last event: resolves what depends on events and descriptors that come in any order. end: the size of
  // the file in bytes.
  void finish(int64_t end);

 private:
  struct CategoryRef {
    uint8_t index = 0;
    Side side = Side::kHost;
    bool known = true;
  };

  void begin_slice(const TrackEvent& event, int64_t ts);
  void add_memory(const TrackEvent& event, int64_t ts);
  CategoryRef category_of(const TrackEvent& event);
  void add_ids(const TrackEvent& event, size_t slice, Side side);
  void add_comm(const TrackEvent& event, size_t slice);
  void add_details(const TrackEvent& event, size_t slice, Side side);
  uint16_t stream_lane(const TrackEvent& event, uint32_t track);
  uint32_t compact(uint64_t id);
  void count_flows(const TrackEvent& event, uint8_t category);

  static constexpr uint16_t kLaneOfTrack = UINT16_MAX;  // resolved when all tracks are described

  RankTrace& trace_;
  FileIssues& issues_;
  ValueNames names_{trace_.names};
  LaneTable lanes_{trace_, names_};
  TrackLanes tracks_{trace_, lanes_};
  int64_t offset_ = 0, events_ = 0, last_end_ = INT64_MIN;
  std::vector<SliceEdge> edges_;
  std::vector<uint32_t> candidates_;
  Column<uint32_t> slice_tracks_, memory_tracks_, counter_tracks_;
  std::map<uint16_t, uint32_t> stream_tracks_;                    // of lanes found by stream number: the first track
  std::map<std::pair<NameId, uint8_t>, CategoryRef> categories_;  // by the name and side in an argument; 255: none
  std::map<std::pair<uint32_t, NameId>, uint32_t> frames_;        // of RankTrace::stacks
  std::unordered_map<uint64_t, uint32_t> wide_ids_;
  FlowSet flows_;
};

}  // namespace ms::profile::detail
