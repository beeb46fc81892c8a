#include "profile/ingest/detail/event_columns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "core/error.h"
#include "kernels/checksum.h"
#include "profile/ingest/detail/device_candidates.h"
#include "profile/ingest/detail/json_text.h"
#include "profile/ingest/detail/numbers.h"
#include "profile/ingest/detail/renumber.h"

namespace ms::profile::detail {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

enum class PhaseUse : uint8_t { kUnknown, kCounted, kRead };

constexpr std::array<PhaseUse, 256> kPhases = [] {
  std::array<PhaseUse, 256> use{};
  for (const char c : std::string_view("MnTpNODPRvVc()=")) use[static_cast<unsigned char>(c)] = PhaseUse::kCounted;
  for (const char c : std::string_view("XBEiICstfbeSF")) use[static_cast<unsigned char>(c)] = PhaseUse::kRead;
  return use;
}();

// Which arguments of operators with this name are used.
enum NameFlag : uint8_t { kKnownName = 1, kHasFlopsName = 2, kCommunicatesName = 4, kMemoryName = 8, kTritonName = 16 };

uint8_t flags_of_name(std::string_view name) {
  uint8_t flags = kKnownName;
  for (const std::string_view op :
       {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::conv", "aten::_scaled_dot",
        "aten::scaled_dot", "aten::cudnn_conv", "aten::miopen_conv", "aten::matmul", "aten::_grouped_mm"}) {
    if (name.starts_with(op)) flags |= kHasFlopsName;
  }
  if (name.starts_with("nccl:") || name.starts_with("gloo:") || name.starts_with("mpi:") || name.starts_with("ucc:") ||
      name == "record_param_comms" || name.starts_with("c10d::")) {
    flags |= kCommunicatesName;
  }
  if (name == "[memory]") flags |= kMemoryName;
  if (name.starts_with("triton")) flags |= kTritonName;
  return flags;
}

uint64_t mix(uint64_t a, uint64_t b) {
  const uint64_t pair[2] = {a, b};
  return kernels::xxh3(pair, sizeof(pair));
}

}  // namespace

uint8_t EventColumns::name_flags(NameId name) {
  if (name >= name_flags_.size()) name_flags_.resize(std::max<size_t>(name + 1, 2 * name_flags_.size()));
  uint8_t& flags = name_flags_[name];
  if (flags == 0) {
    const std::string& text = trace_.names[name];
    flags = flags_of_name(text);
    if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; })) {
      control_names_.emplace_back(name, offset_);
    }
  }
  return flags;
}

const EventColumns::CategoryRef& EventColumns::find_category(const Value& value) {
  const std::string_view text = value.kind == Kind::kString ? value.text() : std::string_view();
  const uint64_t head = text.empty() ? 0 : value.head();
  const auto is = [&](const CachedCategory& known) {
    const bool same = known.head == head && known.text.size() == text.size();
    return same && (text.size() <= sizeof(head) || known.text == text);
  };
  if (last_category_ < categories_.size() && is(categories_[last_category_])) return categories_[last_category_].ref;
  for (last_category_ = 0; last_category_ < categories_.size(); ++last_category_) {
    if (is(categories_[last_category_])) return categories_[last_category_].ref;
  }
  const std::string name = value.escaped ? unescape(text) : std::string(text);
  const std::optional<Side> side = side_of_category(name);
  CategoryRef ref{kernels::xxh3(name.data(), name.size()), trace_.category(name, side.value_or(Side::kHost)),
                  side.value_or(Side::kHost), side.has_value()};
  if (categories_.size() == kCachedCategories) return uncached_category_ = ref;
  categories_.push_back({head, std::string(text), ref});
  return categories_.back().ref;
}

// Shapes and call stacks of operators are most of many files, and few operators' arguments are used.
bool EventColumns::wants_arguments(const ScannedEvent& event) {
  if (own_ || !event.cat || !event.name) return true;
  const CategoryRef& category = category_of(event.cat);
  if (category.side == Side::kPython) return false;
  if (category.side != Side::kOperator && category.side != Side::kAnnotation) return true;
  return (name_flags(names_.of(event.name)) & (kHasFlopsName | kCommunicatesName | kTritonName)) != 0;
}

int64_t EventColumns::time_of(const Value& value, std::string_view missing, const ScannedEvent& event) {
  if (value.kind == Kind::kNumber || value.kind == Kind::kString) {
    const int64_t ns = ns_of_microseconds(value.text());
    if (ns == kNoTime) issue("bad_number", example(event));
    return ns;
  }
  const bool none = !value || (value.kind == Kind::kLiteral && value.text() == "null");
  issue(none ? missing : "bad_number", example(event));
  return kNoTime;
}

// The store holds 32-bit ids. Wider ids are renumbered, downwards from the top.
uint32_t EventColumns::compact(uint64_t id) {
  if (id == UINT64_MAX || id == UINT32_MAX) return 0;  // -1: no id
  if (id < kFirstWideId) return static_cast<uint32_t>(id);
  const auto [entry, added] = wide_ids_.try_emplace(id, UINT32_MAX - 1 - static_cast<uint32_t>(wide_ids_.size()));
  if (added) wide_order_.push_back(id);
  return entry->second;
}

int64_t EventColumns::integer(const ScannedEvent& event, Arg arg, int64_t missing) const {
  const Value value = event.get(arg);
  return value ? whole_number(value.text()).value_or(missing) : missing;
}

size_t EventColumns::add_slice(int64_t ts, int64_t dur, NameId name, uint8_t category, uint16_t lane) {
  Events& events = trace_.events;
  const size_t index = events.size();
  if (index >= UINT32_MAX - 1) {
    throw Error(ErrorCode::kCorruptData, cat(issues_.path(), ": more than 4 billion events: cut it with msprof slice"));
  }
  events.ts.push_back(ts);
  events.dur.push_back(dur);
  events.name.push_back(name);
  events.category.push_back(category);
  events.lane.push_back(lane);
  events.correlation.push_back(0);
  events.external.push_back(0);
  events.comm.push_back(0);
  events.details.push_back(0);
  last_end_ = std::max(last_end_, ts + std::max<int64_t>(dur, 0));
  return index;
}

void EventColumns::add_comm(const ScannedEvent& event, size_t index) {
  CommArgs comm;
  comm.op = names_.of(event.get(Arg::kCollectiveName));
  comm.group = names_.of(event.get(Arg::kGroupName));
  comm.ranks = names_.of(event.get(Arg::kGroupRanks));
  comm.dtype = names_.of(event.get(Arg::kDtype));
  comm.sequence = integer(event, Arg::kSeq, -1);
  comm.in_elements = integer(event, Arg::kInElements, 0);
  comm.out_elements = integer(event, Arg::kOutElements, 0);
  comm.comms_id = static_cast<uint64_t>(integer(event, Arg::kCommsId, 0));
  comm.source = static_cast<int32_t>(integer(event, Arg::kSourceRank, -1));
  comm.destination = static_cast<int32_t>(integer(event, Arg::kDestinationRank, -1));
  const Value async = event.get(Arg::kAsync);
  comm.async = async.kind == Kind::kLiteral && async.text() == "true";
  if (own_) {
    const std::string op = trace_.names[comm.op], group = trace_.names[comm.group];
    trace_.events.name[index] = names_.intern(cat(op, "(", group, ")"));
    comm.dtype = names_.intern(own_dtype(trace_.names[comm.dtype]));
  }
  trace_.events.comm[index] = static_cast<uint32_t>(trace_.comms.size());
  trace_.comms.push_back(comm);
}

// c10d::send and c10d::recv_ pass their peer as the third input: ["", "", "1", "0"].
void EventColumns::add_peer(const ScannedEvent& event, size_t index) {
  const std::string& name = trace_.names[trace_.events.name[index]];
  const bool sends = name == "c10d::send";
  if (!sends && name != "c10d::recv_") return;
  std::string_view inputs = event.get(Arg::kConcreteInputs).text();
  for (int quotes = 0; quotes < 5; ++quotes) {
    const size_t at = inputs.find('"');
    if (at == std::string_view::npos) return;
    inputs.remove_prefix(at + 1);
  }
  CommArgs comm;
  int32_t& peer = sends ? comm.destination : comm.source;
  if (std::from_chars(inputs.data(), inputs.data() + inputs.size(), peer).ec != std::errc() || peer < 0) return;
  comm.op = names_.intern(sends ? "send" : "recv");
  comm.in_elements = comm.out_elements = -1;
  trace_.events.comm[index] = static_cast<uint32_t>(trace_.comms.size());
  trace_.comms.push_back(comm);
}

void EventColumns::add_arguments(const ScannedEvent& event, size_t index, Side side, NameId name) {
  Events& events = trace_.events;
  if (event.present == 0) return;
  const bool device = on_device(side);
  const uint8_t flags = device || side == Side::kLaunch ? 0 : name_flags(name);
  if (device || side == Side::kLaunch || event.has(Arg::kConnectionId)) {
    Value id = event.get(Arg::kCorrelation);
    if (!id) id = event.get(Arg::kConnectionId);
    if (id) events.correlation[index] = compact(static_cast<uint64_t>(whole_number(id.text()).value_or(0)));
  }
  if (device || (flags & kCommunicatesName) != 0) {
    Value id = event.get(Arg::kExternalId);
    if (!id) id = event.get(Arg::kOldExternalId);
    if (id && !own_) events.external[index] = compact(static_cast<uint64_t>(whole_number(id.text()).value_or(0)));
    if (event.has(Arg::kCollectiveName)) {
      add_comm(event, index);
    } else if (event.has(Arg::kConcreteInputs)) {
      add_peer(event, index);
    }
  }
  Details details;
  bool any = false;
  if (device) {
    details.flops = integer(event, Arg::kFlops, -1);
    details.bytes = integer(event, Arg::kBytes, -1);
    const std::string_view bandwidth = event.get(Arg::kBandwidth).text();
    std::from_chars(bandwidth.data(), bandwidth.data() + bandwidth.size(), details.gb_per_s);
    any = details.flops >= 0 || details.bytes >= 0 || details.gb_per_s != 0;
  }
  if (own_ && side == Side::kAnnotation) {
    details.microbatch = integer(event, Arg::kMicrobatch, -1);
    details.chunk = integer(event, Arg::kChunk, -1);
    any = details.microbatch >= 0;
  }
  if ((flags & kTritonName) != 0 && integer(event, Arg::kStream, -1) >= 0) any = details.names_stream = true;
  if (side == Side::kDeviceSync) {
    details.sync_kind = static_cast<uint8_t>(sync_kind_of_name(event.get(Arg::kSyncKind).text()));
    details.unsigned_stream = integer(event, Arg::kStream, -1) == int64_t{UINT32_MAX};
    details.wait_stream = static_cast<int32_t>(integer(event, Arg::kWaitOnStream, -1));
    const Value record = event.get(Arg::kWaitOnCorrelation);
    if (record) {
      details.wait_correlation = compact(static_cast<uint64_t>(whole_number(record.text()).value_or(0)));
    }
    any = true;
  }
  if ((own_ || (flags & (kHasFlopsName | kCommunicatesName)) != 0) && event.has(Arg::kInputDims)) {
    details.dims = names_.of(event.get(Arg::kInputDims));
    details.types = names_.of(event.get(Arg::kInputType));
    any = true;
  }
  if (own_ && event.has(Arg::kCallStack)) {
    const Value stack = event.get(Arg::kCallStack);
    details.stack = add_stack(stack.escaped ? unescape(stack.text()) : std::string(stack.text()));
    any = any || details.stack != 0;
  }
  if (!any) return;
  events.details[index] = static_cast<uint32_t>(trace_.details.size());
  trace_.details.push_back(details);
}

uint32_t EventColumns::intern_frame(uint32_t parent, NameId name) {
  const auto [entry, added] = frames_.try_emplace({parent, name}, static_cast<uint32_t>(trace_.stacks.size()));
  if (added) trace_.stacks.push_back({parent, name});
  return entry->second;
}

// text: "outer;inner"
uint32_t EventColumns::add_stack(std::string_view text) {
  uint32_t frame = 0;
  while (!text.empty()) {
    const std::string_view name = text.substr(0, text.find(';'));
    frame = intern_frame(frame, names_.intern(name));
    text.remove_prefix(std::min(text.size(), name.size() + 1));
  }
  return frame;
}

void EventColumns::on_slice(const ScannedEvent& event, int64_t ts) {
  int64_t dur = time_of(event.dur, "missing_dur", event);
  if (dur == kNoTime) dur = 0;
  if (dur < 0) {
    issue("negative_dur", example(event));
    ++trace_.negative_dur;
    dur = 0;
  }
  CategoryRef category = category_of(event.cat);
  const NameId name = names_.of(event.name);
  bool candidate = false;
  if (!category.known && event.has(Arg::kDevice) && event.has(Arg::kStream)) {
    candidate = true;
    category.side = Side::kDevice;
    category.index = trace_.category(trace_.names[trace_.categories[category.index].name], Side::kDevice);
  } else if (!event.cat && event.pid.kind == Kind::kString) {
    // The old autograd profiler writes no categories; the process name tells host from device.
    const std::string_view process = event.pid.text();
    if (process == "CUDA functions" || process == "CPU functions") {
      category.side = process[1] == 'U' ? Side::kDevice : Side::kOperator;
      category.index = trace_.category(process, category.side);
    } else if (process == "Spans" || process == "Traces" || process.empty()) {
      category.side = Side::kPseudo;
      category.index = trace_.category("", Side::kPseudo);
    }
  }
  if (!event.cat && event.has(Arg::kTaskType)) {
    // Ascend's tasks: the lane's name later shows that they are device events; the type is their category.
    category.index = trace_.category(event.get(Arg::kTaskType).text(), Side::kHost);
  }
  uint16_t lane = 0;
  if (on_device(category.side)) {
    const Value device = event.get(Arg::kDevice), stream = event.get(Arg::kStream);
    const Value& track = stream ? stream : event.tid;
    const int64_t owner = lanes_.id_of(device ? device : event.pid);
    const auto number = stream_number(track.text());
    lane = number ? lanes_.stream(owner, *number) : lanes_.find(true, owner, track ? lanes_.id_of(track) : 0);
  } else {
    lane = lanes_.host(event);
  }
  const size_t index = add_slice(ts, dur, name, category.index, lane);
  if (events_ == 1) trace_.begins_with_slice = true;
  add_arguments(event, index, category.side, name);
  if (candidate) candidates_.push_back(static_cast<uint32_t>(index));
}

void EventColumns::on_metadata(const ScannedEvent& event) {
  const Value name = event.get(Arg::kName);
  if (!name) return;
  if (event.name.text() == "process_name") lanes_.name_process(event.pid, names_.of(name));
  if (event.name.text() == "thread_name") lanes_.name_thread(event.pid, event.tid, names_.of(name));
}

void EventColumns::on_memory(const ScannedEvent& event, int64_t ts) {
  MemoryChange change;
  change.ts = ts;
  change.address = integer(event, Arg::kAddress, 0);
  change.bytes = integer(event, Arg::kMemoryBytes, 0);
  change.total = integer(event, Arg::kTotalAllocated, -1);
  change.reserved = integer(event, Arg::kTotalReserved, -1);
  change.tag = names_.of(event.get(Arg::kTag));
  change.lane = lanes_.host(event);
  change.device_type = static_cast<int16_t>(integer(event, Arg::kDeviceType, 0));
  change.device = static_cast<int16_t>(integer(event, Arg::kDeviceId, -1));
  trace_.memory.push_back(change);
}

void EventColumns::on_counter(const ScannedEvent& event, int64_t ts) {
  if (!event.args) return;
  const uint16_t lane = lanes_.host(event);
  const NameId name = names_.of(event.name);
  for_each_member(event.args.text(), [&](const Value& key, const Value& value) {
    double number = 0;
    const auto [end, error] = std::from_chars(value.data, value.data + value.size, number);
    if (value.kind != Kind::kNumber || error != std::errc()) return;
    const bool plain = key.text() == "value" && !event.id;
    const NameId series = plain ? name
                                : names_.intern(cat(trace_.names[name], event.id ? "/" : "",
                                                    event.id ? event.id.text() : "", ".", key.text()));
    trace_.counters.push_back({ts, number, series, lane});
  });
}

void EventColumns::on_flow(const ScannedEvent& event, int64_t ts) {
  const CategoryRef category = category_of(event.cat);
  const std::optional<int64_t> number = whole_number(event.id.text());
  const uint64_t id =
      number ? static_cast<uint64_t>(*number) : kernels::xxh3(event.id.data, event.id.size) | uint64_t{1} << 63;
  const bool start = event.ph.data[0] == 's';
  if (event.ph.data[0] != 't' &&
      flows_.add(mix(mix(category.hash, kernels::xxh3(event.name.data, event.name.size)), id), start, category.index)) {
    ++trace_.categories[category.index].complete_flows;
  }
  // Kineto's flows repeat what correlations contain; Ascend's are the only link.
  const std::string& name = trace_.names[trace_.categories[category.index].name];
  if (name == "HostToDevice" || name == "async_npu") {
    trace_.flows.push_back({ts, id, lanes_.host(event), category.index, start});
  }
}

void EventColumns::on_async(const ScannedEvent& event, int64_t ts, char phase) {
  const CategoryRef category = category_of(event.cat);
  const std::optional<int64_t> number = whole_number(event.id.text());
  const uint64_t id = mix(number ? static_cast<uint64_t>(*number) : kernels::xxh3(event.id.data, event.id.size),
                          kernels::xxh3(event.scope.data, event.scope.size));
  const uint64_t track = mix(category.hash, id) | 1;  // odd: not a lane
  if (phase == 'b' || phase == 'S') {
    const uint16_t lane = lanes_.track(lanes_.id_of(event.pid), category.index);
    const uint8_t host = trace_.category(trace_.names[trace_.categories[category.index].name], Side::kHost);
    edges_.push_back({ts, track, add_slice(ts, -1, names_.of(event.name), host, lane)});
  } else if (phase == 'e' || phase == 'F') {
    edges_.push_back({ts, track, kNoSlice});
  }
}

void EventColumns::add(const ScannedEvent& event) {
  const size_t slices = trace_.events.size();
  add_event(event);
  if (visitor_ != nullptr && trace_.events.size() > slices) {
    (*visitor_)(static_cast<uint32_t>(slices), event.args ? event.args.text() : std::string_view());
  }
}

void EventColumns::add_event(const ScannedEvent& event) {
  if (!event.ph || event.ph.kind != Kind::kString || event.ph.size != 1) {
    return issue(event.ph && event.ph.size > 0 ? "unknown_ph" : "missing_ph", example(event));
  }
  const char phase = event.ph.data[0];
  const PhaseUse use = kPhases[static_cast<unsigned char>(phase)];
  if (use == PhaseUse::kUnknown) return issue("unknown_ph", example(event));
  ++trace_.by_phase[static_cast<size_t>(phase)];
  ++events_;
  if (event.cat) ++trace_.categories[category_of(event.cat).index].events;
  if (phase == 'M') return on_metadata(event);
  if (use == PhaseUse::kCounted) return;
  const int64_t ts = time_of(event.ts, "missing_ts", event);
  if (ts == kNoTime) {
    if (event.ts) issue("lost_events", example(event));
    return;
  }
  switch (phase) {
    case 'X':
      return on_slice(event, ts);
    case 'B': {
      const CategoryRef category = category_of(event.cat);
      const uint16_t lane = lanes_.host(event);
      edges_.push_back({ts, uint64_t{lane} * 2, add_slice(ts, -1, names_.of(event.name), category.index, lane)});
      return;
    }
    case 'E':
      edges_.push_back({ts, uint64_t{lanes_.host(event)} * 2, kNoSlice});
      last_end_ = std::max(last_end_, ts);
      return;
    case 'i':
    case 'I':
      if (event.name.text() == "[memory]") on_memory(event, ts);
      return;
    case 'C':
      return on_counter(event, ts);
    case 's':
    case 't':
    case 'f':
      return on_flow(event, ts);
    default:
      return on_async(event, ts, phase);
  }
}

void EventColumns::absorb_events(Events& later, const std::vector<NameId>& names,
                                 const std::vector<uint8_t>& categories, const std::vector<uint16_t>& lanes,
                                 const std::vector<uint64_t>& wide_ids) {
  Events& events = trace_.events;
  const auto append = [](auto& to, auto& from, const auto& here) {
    to.reserve(to.size() + from.size());
    for (const auto value : from) to.push_back(here(value));
    std::remove_reference_t<decltype(from)>().swap(from);  // frees each column at once, to bound the memory
  };
  const auto same = [](auto value) { return value; };
  // Wide ids are numbered downwards from the top.
  const auto id = [&](uint32_t value) {
    const size_t from_top = UINT32_MAX - 1 - static_cast<size_t>(value);
    return from_top < wide_ids.size() ? compact(wide_ids[from_top]) : value;
  };
  const auto row = [](size_t have) {
    return [base = static_cast<uint32_t>(have) - 1](uint32_t value) { return value == 0 ? 0 : value + base; };
  };
  append(events.ts, later.ts, same);
  append(events.dur, later.dur, same);
  append(events.name, later.name, [&](NameId name) { return names[name]; });
  append(events.category, later.category, [&](uint8_t category) { return categories[category]; });
  append(events.lane, later.lane, [&](uint16_t lane) { return lanes[lane]; });
  append(events.correlation, later.correlation, id);
  append(events.external, later.external, id);
  append(events.comm, later.comm, row(trace_.comms.size()));
  append(events.details, later.details, row(trace_.details.size()));
}

bool EventColumns::absorb(EventColumns& later) {
  RankTrace& more = later.trace_;
  if (trace_.categories.size() + more.categories.size() >= 256) return false;
  if (trace_.events.size() + more.events.size() >= UINT32_MAX - 1 || !lanes_.can_absorb(later.lanes_)) return false;
  // Names are numbered by first use in both traces, so the merged trace numbers them as one reader would.
  std::vector<NameId> names(more.names.size());
  for (NameId id = 0; id < names.size(); ++id) names[id] = trace_.names.intern(more.names[id]);
  std::vector<uint8_t> categories;
  for (const Category& category : more.categories) {
    categories.push_back(trace_.category(trace_.names[names[category.name]], category.side));
    trace_.categories[categories.back()].events += category.events;
  }
  const std::vector<uint16_t> lanes = lanes_.absorb(later.lanes_, names, categories);
  for (const uint64_t id : later.wide_order_) compact(id);
  for (const auto& [name, offset] : later.control_names_) {
    if (name_flags_.size() <= names[name]) name_flags_.resize(trace_.names.size());
    if (name_flags_[names[name]] != 0) continue;
    name_flags_[names[name]] = flags_of_name(trace_.names[names[name]]);
    control_names_.emplace_back(names[name], offset);
  }
  const size_t slices = trace_.events.size();
  absorb_events(more.events, names, categories, lanes, later.wide_order_);
  for (size_t i = 1; i < more.comms.size(); ++i) trace_.comms.push_back(renumbered(more.comms[i], names));
  std::vector<uint32_t> frames(more.stacks.size());
  for (size_t i = 1; i < frames.size(); ++i) {  // parents precede children
    frames[i] = intern_frame(frames[more.stacks[i].parent], names[more.stacks[i].name]);
  }
  for (size_t i = 1; i < more.details.size(); ++i) {
    Details details = renumbered(more.details[i], names);
    details.stack = frames[details.stack];
    const size_t from_top = UINT32_MAX - 1 - static_cast<size_t>(details.wait_correlation);
    if (from_top < later.wide_order_.size()) details.wait_correlation = compact(later.wide_order_[from_top]);
    trace_.details.push_back(details);
  }
  for (const MemoryChange& change : more.memory) trace_.memory.push_back(renumbered(change, names, lanes));
  for (const CounterSample& sample : more.counters) trace_.counters.push_back(renumbered(sample, names, lanes));
  for (FlowPoint point : more.flows) {
    point.lane = lanes[point.lane];
    point.category = categories[point.category];
    trace_.flows.push_back(point);
  }
  flows_.absorb(later.flows_, categories, [&](uint8_t category) { ++trace_.categories[category].complete_flows; });
  for (SliceEdge edge : later.edges_) {
    if (edge.slice != kNoSlice) edge.slice += slices;
    if ((edge.track & 1) == 0) edge.track = uint64_t{lanes[edge.track / 2]} * 2;
    edges_.push_back(edge);
  }
  for (const uint32_t candidate : later.candidates_) candidates_.push_back(candidate + static_cast<uint32_t>(slices));
  for (size_t i = 0; i < trace_.by_phase.size(); ++i) trace_.by_phase[i] += more.by_phase[i];
  trace_.negative_dur += more.negative_dur;
  last_end_ = std::max(last_end_, later.last_end_);
  events_ += later.events_;
  return true;
}

void EventColumns::finish(int64_t end) {
  for (const auto& [name, offset] : control_names_) issues_.add("control_characters", offset, trace_.names[name]);
  join_edges(edges_, trace_, last_end_, issues_, end);
  resolve_candidates(candidates_, trace_, issues_.stats());
  lanes_.finish();
  trace_.flow_ids = flows_.count();
  trace_.flow_pairs_complete = flows_.complete();
}

}  // namespace ms::profile::detail
