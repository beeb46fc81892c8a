#include "profile/ingest/detail/lane_table.h"

#include <charconv>
#include <optional>

#include "profile/ingest/detail/numbers.h"

namespace ms::profile::detail {

int64_t LaneTable::id_of(const Value& value) {
  if (!value) return 0;
  if (value.kind == Kind::kNumber && value.size < 19) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data, value.data + value.size, number);
    if (error == std::errc() && end == value.data + value.size) return number;
  }
  // Numbers in the range of text ids are treated as texts.
  if (const auto number = whole_number(value.text()); number && *number < kTextLaneId) return *number;
  return kTextLaneId + names_.of(value);
}

uint16_t LaneTable::find_or_add(bool device, int64_t process, int64_t id) {
  const auto [entry, added] = lanes_.try_emplace({device, process, id}, static_cast<uint16_t>(trace_.lanes.size()));
  if (!added) return entry->second;
  if (trace_.lanes.size() >= UINT16_MAX) return entry->second = UINT16_MAX - 1;
  trace_.lanes.push_back({device, process, id, 0, 0});
  return entry->second;
}

std::vector<uint16_t> LaneTable::absorb(const LaneTable& later, const std::vector<NameId>& names,
                                        const std::vector<uint8_t>& categories) {
  const auto here = [&](int64_t id) {
    return id < kTextLaneId ? id : kTextLaneId + names[static_cast<size_t>(id - kTextLaneId)];
  };
  std::vector<uint16_t> lanes;
  for (const Lane& lane : later.trace_.lanes) {
    const bool is_track = !lane.device && looks_like_track(lane.id);
    lanes.push_back(
        find(lane.device, here(lane.process),
             is_track ? kFirstTrack - categories[static_cast<size_t>(kFirstTrack - lane.id)] : here(lane.id)));
  }
  for (const auto& [process, name] : later.process_names_) process_names_[here(process)] = names[name];
  for (const auto& [thread, name] : later.thread_names_) {
    thread_names_[{here(thread.first), here(thread.second)}] = names[name];
  }
  return lanes;
}

void LaneTable::finish() {
  // A stream may have any number, so also one in the range of text ids.
  const auto is_text = [&](int64_t id) {
    return id >= kTextLaneId && id - kTextLaneId < static_cast<int64_t>(names_.size());
  };
  for (Lane& lane : trace_.lanes) {
    const auto thread = thread_names_.find({lane.process, lane.id});
    if (thread != thread_names_.end()) {
      lane.name = thread->second;
    } else if (is_text(lane.id)) {
      lane.name = static_cast<NameId>(lane.id - kTextLaneId);
    }
    const auto process = process_names_.find(lane.process);
    if (process != process_names_.end()) {
      lane.process_name = process->second;
    } else if (is_text(lane.process)) {
      lane.process_name = static_cast<NameId>(lane.process - kTextLaneId);
    }
    if (!lane.device && trace_.pid == 0 && lane.process > 0 && lane.process < kTextLaneId) trace_.pid = lane.process;
  }
}

}  // namespace ms::profile::detail
