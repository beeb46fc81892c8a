#include "profile/ingest/detail/track_lanes.h"

#include <algorithm>

#include "core/error.h"
#include "profile/ingest/detail/protobuf.h"
#include "profile/perfetto.h"

namespace ms::profile::detail {
namespace {

namespace fields = perfetto::track_descriptor;

constexpr int kMaxDepth = 32;  // deeper chains of parents are taken as a cycle

}  // namespace

uint32_t TrackLanes::index(uint64_t uuid) {
  const auto [entry, added] = by_uuid_.try_emplace(uuid, static_cast<uint32_t>(tracks_.size()));
  if (added) tracks_.emplace_back().uuid = uuid;
  return entry->second;
}

bool TrackLanes::describe(std::string_view descriptor) {
  Track track;
  bool has_uuid = false;
  FieldReader in(descriptor);
  while (in.next()) {
    FieldReader about(in.bytes());
    switch (in.field()) {
      case fields::kUuid:
        has_uuid = true;
        track.uuid = in.integer();
        break;
      case fields::kParent:
        track.parent = in.integer();
        break;
      case fields::kName:
      case fields::kStaticName:
        track.name = trace_.names.intern(in.bytes());
        break;
      case fields::kProcess: {
        if (track.kind == Kind::kPlain) track.kind = Kind::kProcess;
        NameId name = 0;
        int64_t pid = 0;
        while (about.next()) {
          if (about.field() == fields::kProcessPid) pid = static_cast<int32_t>(about.integer());
          if (about.field() == fields::kProcessName) name = trace_.names.intern(about.bytes());
        }
        if (track.kind == Kind::kProcess) track.pid = pid;
        if (name != 0) process_names_[pid] = name;
        break;
      }
      case fields::kThread:
        track.kind = Kind::kThread;
        while (about.next()) {
          if (about.field() == fields::kThreadPid) track.pid = static_cast<int32_t>(about.integer());
          if (about.field() == fields::kThreadTid) track.tid = about.signed_integer();
          if (about.field() == fields::kThreadName) track.name = trace_.names.intern(about.bytes());
        }
        break;
      case fields::kCounter:
        track.kind = Kind::kCounter;
        while (about.next()) {
          if (about.field() == fields::kCounterMultiplier) track.multiplier = about.signed_integer();
          if (about.field() == fields::kCounterIncremental) track.incremental = about.integer() != 0;
        }
        break;
      default:
        continue;
    }
    if (!about.ok()) return false;
  }
  if (!in.ok() || !has_uuid) return false;
  // Ignore ids outside the range that lanes can tell apart from texts.
  if (track.tid <= -kTextLaneId || track.tid >= kTextLaneId) track.tid = 0;
  Track& known = tracks_[index(track.uuid)];
  track.total = known.total;
  if (track.name == 0) track.name = known.name;
  known = track;
  return true;
}

double TrackLanes::counted(uint32_t index, double sample) {
  Track& track = tracks_[index];
  const double value = sample * static_cast<double>(track.multiplier == 0 ? 1 : track.multiplier);
  if (!track.incremental) return value;
  track.total += value;
  return track.total;
}

const TrackLanes::Track* TrackLanes::parent_of(const Track& track) const {
  const auto found = track.parent == 0 ? by_uuid_.end() : by_uuid_.find(track.parent);
  return found == by_uuid_.end() ? nullptr : &tracks_[found->second];
}

TrackLanes::Place TrackLanes::place(const Track& of) {
  const Track* track = &of;
  if (const Track* above = parent_of(of); of.kind == Kind::kCounter && above != nullptr) track = above;
  if (const Track* above = parent_of(*track); above != nullptr && track->kind == Kind::kPlain &&
                                              above->kind == Kind::kThread &&
                                              (track->name == 0 || track->name == above->name)) {
    track = above;
  }
  // The process is that of the nearest ancestor that has one, or the name of the topmost track.
  const Track* owner = track;
  for (int depth = 0; depth < kMaxDepth && owner->kind != Kind::kProcess && owner->kind != Kind::kThread; ++depth) {
    const Track* above = parent_of(*owner);
    if (above == nullptr) break;
    owner = above;
  }
  Place place;
  if (owner->kind == Kind::kProcess || owner->kind == Kind::kThread) {
    place.process = owner->pid;
    const auto name = process_names_.find(owner->pid);
    if (name != process_names_.end()) place.process_name = name->second;
  } else if (owner != track && owner->name != 0) {
    place.process = kTextLaneId + owner->name;
    place.process_name = owner->name;
  }
  if (track->kind == Kind::kThread) {
    place.id = track->tid;
    place.name = track->name;
  } else if (track->kind == Kind::kProcess) {
    place.id = track->pid;
  } else if (track->uuid != 0) {
    place.name = track->name != 0 ? track->name : trace_.names.intern(core::cat("track ", track->uuid));
    place.id = kTextLaneId + place.name;
  }
  return place;
}

uint16_t TrackLanes::lane(uint32_t index, bool device) {
  std::vector<uint16_t>& found = found_[device ? 1 : 0];
  if (found.size() < tracks_.size()) found.resize(tracks_.size(), kNoLane);
  if (found[index] != kNoLane) return found[index];
  const Place at = place(tracks_[index]);
  const uint16_t lane = found[index] = lanes_.find(device, at.process, at.id);
  Lane& row = trace_.lanes[lane];
  if (row.name == 0) row.name = at.name;
  if (row.process_name == 0) row.process_name = at.process_name;
  return lane;
}

void TrackLanes::name_lane(uint16_t lane, uint32_t index) {
  const Place at = place(tracks_[index]);
  trace_.lanes[lane].name = at.name;
  trace_.lanes[lane].process_name = at.process_name;
}

}  // namespace ms::profile::detail
