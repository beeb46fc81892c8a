#include "profile/ingest/detail/track_columns.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/checksum.h"
#include "profile/ingest/detail/device_candidates.h"
#include "profile/ingest/kineto_words.h"

namespace ms::profile::detail {
namespace {

namespace fields = perfetto::track_event;
using perfetto::Key;

constexpr uint8_t kNoSide = UINT8_MAX;

}  // namespace

// The store holds 32-bit ids. Wider ids are renumbered, downwards from the top.
uint32_t TrackColumns::compact(uint64_t id) {
  if (id == UINT64_MAX || id == UINT32_MAX) return 0;  // -1: no id
  if (id < UINT32_MAX - 1'000'000'000) return static_cast<uint32_t>(id);
  return wide_ids_.try_emplace(id, UINT32_MAX - 1 - static_cast<uint32_t>(wide_ids_.size())).first->second;
}

TrackColumns::CategoryRef TrackColumns::category_of(const TrackEvent& event) {
  uint8_t given = kNoSide;
  if (event.has(Key::kSide)) {
    const std::optional<Side> side = side_of_name(trace_.names[event.get(Key::kSide).text]);
    if (side) given = static_cast<uint8_t>(*side);
  }
  const auto find = [&](NameId name) {
    const auto [entry, added] = categories_.try_emplace({name, given});
    if (!added) return entry->second;
    const std::string text = trace_.names[name];
    const std::optional<Side> known = side_of_category(text);
    const Side side = given != kNoSide ? static_cast<Side>(given) : known.value_or(Side::kHost);
    entry->second = {trace_.category(text, side), side, given != kNoSide || known.has_value()};
    return entry->second;
  };
  for (const NameId name : event.categories) {
    if (const CategoryRef category = find(name); category.known) return category;
  }
  return find(event.categories.empty() ? 0 : event.categories.front());
}

void TrackColumns::count_flows(const TrackEvent& event, uint8_t category) {
  for (const uint64_t flow : event.flows) {
    const uint64_t key = kernels::xxh3(&flow, sizeof(flow));
    const int64_t before = flows_.count();
    flows_.add(key, true, category);
    if (flows_.count() == before && flows_.add(key, false, category)) ++trace_.categories[category].complete_flows;
  }
}

void TrackColumns::add_ids(const TrackEvent& event, size_t slice, Side side) {
  Events& events = trace_.events;
  if (event.has(Key::kCorrelation)) {
    events.correlation[slice] = compact(static_cast<uint64_t>(event.get(Key::kCorrelation).number));
  } else if (!event.flows.empty() && (on_device(side) || side == Side::kLaunch)) {
    events.correlation[slice] = compact(event.flows.front());
  }
  if (event.has(Key::kExternalId)) {
    events.external[slice] = compact(static_cast<uint64_t>(event.get(Key::kExternalId).number));
  }
}

void TrackColumns::add_comm(const TrackEvent& event, size_t slice) {
  if (!event.has(Key::kCollectiveName)) return;
  CommArgs comm;
  comm.op = event.get(Key::kCollectiveName).text;
  comm.group = event.get(Key::kGroupName).text;
  comm.ranks = event.get(Key::kGroupRanks).text;
  comm.dtype = event.get(Key::kDtype).text;
  comm.sequence = event.number(Key::kSeq, -1);
  comm.in_elements = event.number(Key::kInElements, 0);
  comm.out_elements = event.number(Key::kOutElements, 0);
  comm.comms_id = static_cast<uint64_t>(event.number(Key::kCommsId, 0));
  comm.source = static_cast<int32_t>(event.number(Key::kSourceRank, -1));
  comm.destination = static_cast<int32_t>(event.number(Key::kDestinationRank, -1));
  comm.async = event.number(Key::kAsync, 0) != 0;
  trace_.events.comm[slice] = static_cast<uint32_t>(trace_.comms.size());
  trace_.comms.push_back(comm);
}

void TrackColumns::add_details(const TrackEvent& event, size_t slice, Side side) {
  const bool any = event.has(Key::kFlops) || event.has(Key::kBytes) || event.has(Key::kInputDims) ||
                   event.has(Key::kMicrobatch) || side == Side::kDeviceSync || !event.stack.empty();
  if (!any) return;
  Details details;
  details.flops = event.number(Key::kFlops, -1);
  details.bytes = event.number(Key::kBytes, -1);
  details.microbatch = event.number(Key::kMicrobatch, -1);
  details.chunk = event.number(Key::kChunk, -1);
  details.dims = event.get(Key::kInputDims).text;
  details.types = event.get(Key::kInputTypes).text;
  if (side == Side::kDeviceSync) {
    details.sync_kind = static_cast<uint8_t>(sync_kind_of_name(trace_.names[event.get(Key::kSyncKind).text]));
    details.unsigned_stream = event.number(Key::kStream, -1) == int64_t{UINT32_MAX};
    details.wait_stream = static_cast<int32_t>(event.number(Key::kWaitOnStream, -1));
    details.wait_correlation = compact(static_cast<uint64_t>(event.number(Key::kWaitOnCorrelation, 0)));
  }
  for (const NameId name : event.stack) {
    const auto [entry, added] = frames_.try_emplace({details.stack, name}, static_cast<uint32_t>(trace_.stacks.size()));
    if (added) trace_.stacks.push_back({details.stack, name});
    details.stack = entry->second;
  }
  trace_.events.details[slice] = static_cast<uint32_t>(trace_.details.size());
  trace_.details.push_back(details);
}

// Lane of a device and a stream, given as numbers or texts.
uint16_t TrackColumns::stream_lane(const TrackEvent& event, uint32_t track) {
  const auto id = [&](Key key) {
    const TrackEvent::Argument argument = event.get(key);
    return argument.is_text && argument.number == 0 ? kTextLaneId + argument.text : argument.number;
  };
  const int64_t stream = id(Key::kStream);
  const uint16_t lane = lanes_.stream(id(Key::kDevice), stream == int64_t{UINT32_MAX} ? -1 : stream);
  stream_tracks_.try_emplace(lane, track);
  return lane;
}

void TrackColumns::begin_slice(const TrackEvent& event, int64_t ts) {
  Events& events = trace_.events;
  const size_t slice = events.size();
  if (slice >= UINT32_MAX - 1) {
    throw core::Error(core::ErrorCode::kCorruptData,
                      core::cat(issues_.path(), ": more than 4 billion events: cut it with msprof slice"));
  }
  CategoryRef category = category_of(event);
  const bool has_stream = event.has(Key::kDevice) && event.has(Key::kStream);
  if (!category.known && has_stream) {
    candidates_.push_back(static_cast<uint32_t>(slice));
    category.side = Side::kDevice;
    category.index = trace_.category(std::string(trace_.names[trace_.categories[category.index].name]), Side::kDevice);
  }
  ++trace_.categories[category.index].events;
  const uint32_t track = tracks_.index(event.track.value_or(0));
  events.ts.push_back(ts);
  events.dur.push_back(0);
  events.name.push_back(event.name);
  events.category.push_back(category.index);
  events.lane.push_back(on_device(category.side) && has_stream ? stream_lane(event, track) : kLaneOfTrack);
  events.correlation.push_back(0);
  events.external.push_back(0);
  events.comm.push_back(0);
  events.details.push_back(0);
  slice_tracks_.push_back(track);
  edges_.push_back({ts, track, slice});
  add_ids(event, slice, category.side);
  add_comm(event, slice);
  add_details(event, slice, category.side);
  count_flows(event, category.index);
}

void TrackColumns::add_memory(const TrackEvent& event, int64_t ts) {
  MemoryChange change;
  change.ts = ts;
  change.address = event.number(Key::kAddress, 0);
  change.bytes = event.number(Key::kMemoryBytes, 0);
  change.total = event.number(Key::kTotalAllocated, -1);
  change.reserved = event.number(Key::kTotalReserved, -1);
  change.tag = event.get(Key::kTag).text;
  change.device_type = static_cast<int16_t>(event.number(Key::kDeviceType, 0));
  change.device = static_cast<int16_t>(event.number(Key::kDeviceId, -1));
  trace_.memory.push_back(change);
  memory_tracks_.push_back(tracks_.index(event.track.value_or(0)));
}

void TrackColumns::add(const TrackEvent& event, int64_t ts, int64_t offset) {
  offset_ = offset;
  if (event.names_missing) issues_.add("missing_names", offset, trace_.names[event.name]);
  switch (event.type) {
    case fields::kSliceBegin:
      ++trace_.by_phase['X'];
      begin_slice(event, ts);
      break;
    case fields::kSliceEnd:
      edges_.push_back({ts, tracks_.index(event.track.value_or(0)), kNoSlice});
      last_end_ = std::max(last_end_, ts);
      return;  // adds no event
    case fields::kInstant:
      ++trace_.by_phase['i'];
      if (!event.categories.empty()) ++trace_.categories[category_of(event).index].events;
      if (trace_.names[event.name] == "[memory]") add_memory(event, ts);
      break;
    case fields::kCounter: {
      ++trace_.by_phase['C'];
      if (!event.value) return issues_.add("bad_event", offset, "a counter sample without a value");
      const uint32_t track = tracks_.index(event.track.value_or(0));
      trace_.counters.push_back({ts, tracks_.counted(track, *event.value), 0, 0});
      counter_tracks_.push_back(track);
      break;
    }
    default:
      return issues_.add("unknown_ph", offset, core::cat("a track event of type ", event.type));
  }
  ++events_;
  last_end_ = std::max(last_end_, ts);
}

void TrackColumns::finish(int64_t end) {
  join_edges(edges_, trace_, last_end_, issues_, end);
  edges_ = {};
  resolve_candidates(candidates_, trace_, issues_.stats());
  Events& events = trace_.events;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events.lane[i] == kLaneOfTrack) events.lane[i] = tracks_.lane(slice_tracks_[i], on_device(trace_.side(i)));
  }
  for (size_t i = 0; i < trace_.memory.size(); ++i) trace_.memory[i].lane = tracks_.lane(memory_tracks_[i], false);
  for (size_t i = 0; i < trace_.counters.size(); ++i) {
    trace_.counters[i].lane = tracks_.lane(counter_tracks_[i], false);
    trace_.counters[i].name = tracks_.name(counter_tracks_[i]);
  }
  for (const auto& [lane, track] : stream_tracks_) tracks_.name_lane(lane, track);
  lanes_.finish();
  trace_.flow_ids = flows_.count();
  trace_.flow_pairs_complete = flows_.complete();
}

}  // namespace ms::profile::detail
