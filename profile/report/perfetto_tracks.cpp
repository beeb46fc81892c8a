#include "profile/report/perfetto_tracks.h"

#include <algorithm>

#include "core/error.h"
#include "profile/report/json_writer.h"
#include "profile/report/protobuf_writer.h"

namespace ms::profile {
namespace {

using core::cat;
using namespace protobuf;
namespace fields = perfetto::track_descriptor;

bool is_pid(int64_t id) { return id >= 0 && id <= INT32_MAX; }

}  // namespace

PerfettoTracks::PerfettoTracks(const RankTrace& trace, bool merged, PerfettoSequence& out, uint64_t& last_uuid)
    : trace_(trace), merged_(merged), out_(out), last_uuid_(last_uuid), home_(trace.pid), lanes_(trace.lanes.size()) {
  const auto host = std::find_if(trace.lanes.begin(), trace.lanes.end(), [](const Lane& lane) { return !lane.device; });
  if (home_ == 0 && host != trace.lanes.end()) home_ = host->process;
  if (merged) home_ = trace.rank;
  for (const Lane& lane : trace.lanes) {
    if (!lane.device && lane.process_name != 0) process_names_.try_emplace(lane.process, lane.process_name);
  }
}

// The name of a process, thread, device or stream.
std::string PerfettoTracks::text_of(int64_t id) const {
  const bool text = id >= kTextLaneId && id < kTextLaneId + static_cast<int64_t>(trace_.names.size());
  return text ? trace_.names[static_cast<NameId>(id - kTextLaneId)] : cat(id);
}

std::string PerfettoTracks::name_of(const Lane& lane) const {
  if (lane.name != 0) return trace_.names[lane.name];
  return lane.id >= kTextLaneId ? text_of(lane.id) : cat(lane.device ? "stream " : "thread ", lane.id);
}

bool PerfettoTracks::has_pid(const Lane& lane) const { return merged_ || is_pid(lane.process); }

uint64_t PerfettoTracks::process(int64_t id) {
  const auto [entry, added] = processes_.try_emplace(merged_ ? home_ : id, last_uuid_ + 1);
  if (!added) return entry->second;
  ++last_uuid_;
  const auto named = process_names_.find(id);
  std::string name = named == process_names_.end() ? std::string() : trace_.names[named->second];
  if (name.empty() && !trace_.meta.empty()) name = "mstrain";
  if (merged_) name = cat("rank ", trace_.rank);
  std::string track;
  put_integer(track, fields::kUuid, entry->second);
  if (merged_ || is_pid(id)) {
    std::string about;
    put_signed(about, fields::kProcessPid, merged_ ? home_ : id);
    if (!name.empty()) put_bytes(about, fields::kProcessName, valid_utf8(name));
    put_bytes(about, fields::kProcessLabels, cat("rank ", trace_.rank));
    put_bytes(track, fields::kProcess, about);
  } else {
    put_bytes(track, fields::kName, valid_utf8(name.empty() ? text_of(id) : name));
  }
  out_.write_track(track);
  return entry->second;
}

uint64_t PerfettoTracks::device(int64_t id) {
  const uint64_t parent = of_rank();
  const auto [entry, added] = devices_.try_emplace(id, last_uuid_ + 1);
  if (!added) return entry->second;
  ++last_uuid_;
  std::string track;
  put_integer(track, fields::kUuid, entry->second);
  put_integer(track, fields::kParent, parent);
  put_bytes(track, fields::kName, valid_utf8(id >= kTextLaneId ? text_of(id) : cat("device ", id)));
  put_integer(track, fields::kChildOrdering, fields::kExplicitOrder);
  out_.write_track(track);
  return entry->second;
}

uint64_t PerfettoTracks::track(uint16_t lane_index, size_t index) {
  std::vector<uint64_t>& uuids = lanes_[lane_index].uuids;
  while (uuids.size() <= index) {
    const Lane& lane = trace_.lanes[lane_index];
    const bool thread = !lane.device && has_pid(lane) && lane.id >= 0 && lane.id < kTextLaneId;
    const uint64_t parent = lane.device                ? device(lane.process)
                            : thread && !uuids.empty() ? uuids[0]
                                                       : process(lane.process);
    std::string track;
    put_integer(track, fields::kUuid, ++last_uuid_);
    put_integer(track, fields::kParent, parent);
    if (thread && uuids.empty()) {
      std::string about;
      put_signed(about, fields::kThreadPid, merged_ ? home_ : lane.process);
      put_signed(about, fields::kThreadTid, lane.id);
      if (lane.name != 0) put_bytes(about, fields::kThreadName, valid_utf8(trace_.names[lane.name]));
      put_bytes(track, fields::kThread, about);
    } else if (!thread || lane.name != 0) {
      put_bytes(track, fields::kName, valid_utf8(name_of(lane)));
    }
    if (lane.device) {
      put_signed(track, fields::kSiblingOrder, std::clamp<int64_t>(lane.id, INT32_MIN, INT32_MAX));
    }
    out_.write_track(track);
    uuids.push_back(last_uuid_);
  }
  return uuids[index];
}

uint64_t PerfettoTracks::of_slice(uint16_t lane, uint64_t start, uint64_t end) {
  return track(lane, lanes_[lane].nesting.place(start, end));
}

uint64_t PerfettoTracks::of_counter(uint16_t lane, NameId series) {
  const uint64_t parent = of_lane(lane);
  const auto [entry, added] = counters_.try_emplace({lane, series}, last_uuid_ + 1);
  if (!added) return entry->second;
  ++last_uuid_;
  std::string track;
  put_integer(track, fields::kUuid, entry->second);
  put_integer(track, fields::kParent, parent);
  put_bytes(track, fields::kName, valid_utf8(trace_.names[series]));
  put_bytes(track, fields::kCounter, {});
  out_.write_track(track);
  return entry->second;
}

}  // namespace ms::profile
