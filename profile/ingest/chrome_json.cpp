#include "profile/ingest/chrome_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/io/json.h"
#include "kernels/checksum.h"
#include "profile/ingest/ascend_lanes.h"
#include "profile/ingest/detail/event_scan.h"
#include "profile/ingest/detail/flow_set.h"
#include "profile/ingest/detail/json_window.h"
#include "profile/ingest/detail/numbers.h"
#include "profile/ingest/kineto_words.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::Arg;
using detail::Kind;
using detail::Scan;
using detail::ScannedEvent;
using detail::Value;

constexpr size_t kExampleBytes = 80;
// Looking for the next whole event after damage costs at most this, so that no file makes it quadratic.
constexpr int64_t kMaxResyncBytes = int64_t{1} << 28;

// The text of a JSON string without its escapes; an unknown escape keeps its character, a lone surrogate its six.
std::string unescape(std::string_view text) {
  std::string out;
  const auto hex4 = [&](size_t at) -> std::optional<uint32_t> {
    uint32_t value = 0;
    if (at + 4 > text.size()) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, value, 16);
    return error == std::errc() && end == text.data() + at + 4 ? std::optional(value) : std::nullopt;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
    if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
      out += kTo[at];
      continue;
    }
    std::optional<uint32_t> code = c == 'u' ? hex4(i + 1) : std::nullopt;
    if (!code) {
      out += c;
      continue;
    }
    i += 4;
    if (*code >= 0xd800 && *code < 0xdc00 && i + 6 < text.size() + 0 && text[i + 1] == '\\' && text[i + 2] == 'u') {
      const std::optional<uint32_t> low = hex4(i + 3);
      if (low && *low >= 0xdc00 && *low < 0xe000) {
        code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
        i += 6;
      }
    }
    const uint32_t u = *code;
    if (u < 0x80) {
      out += static_cast<char>(u);
    } else if (u < 0x800) {
      out += {static_cast<char>(0xc0 | u >> 6), static_cast<char>(0x80 | (u & 63))};
    } else if (u < 0x10000) {  // lone surrogates too: no valid UTF-8, so shown as U+FFFD
      out += {static_cast<char>(0xe0 | u >> 12), static_cast<char>(0x80 | (u >> 6 & 63)),
              static_cast<char>(0x80 | (u & 63))};
    } else {
      out += {static_cast<char>(0xf0 | u >> 18), static_cast<char>(0x80 | (u >> 12 & 63)),
              static_cast<char>(0x80 | (u >> 6 & 63)), static_cast<char>(0x80 | (u & 63))};
    }
  }
  return out;
}

enum class PhaseUse : uint8_t { kUnknown, kCounted, kRead };

constexpr std::array<PhaseUse, 256> kPhases = [] {
  std::array<PhaseUse, 256> use{};
  for (const char c : std::string_view("MnTpNODPRvVc()=")) use[static_cast<unsigned char>(c)] = PhaseUse::kCounted;
  for (const char c : std::string_view("XBEiICstfbeSF")) use[static_cast<unsigned char>(c)] = PhaseUse::kRead;
  return use;
}();

// What the arguments of operators with this name are good for.
enum NameFlag : uint8_t { kKnownName = 1, kHasFlopsName = 2, kCommunicatesName = 4, kMemoryName = 8 };

uint8_t flags_of_name(std::string_view name) {
  uint8_t flags = kKnownName;
  for (const std::string_view op :
       {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::conv", "aten::_scaled_dot",
        "aten::scaled_dot", "aten::cudnn_conv", "aten::miopen_conv", "aten::matmul", "aten::_grouped_mm"}) {
    if (name.starts_with(op)) flags |= kHasFlopsName;
  }
  if (name.starts_with("nccl:") || name.starts_with("gloo:") || name == "record_param_comms" ||
      name.starts_with("c10d::")) {
    flags |= kCommunicatesName;
  }
  if (name == "[memory]") flags |= kMemoryName;
  return flags;
}

class Reader final : detail::ArgumentFilter {
 public:
  Reader(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats)
      : window_(stream), path_(path), trace_(trace), file_(file), stats_(stats) {}

  bool read();

 private:
  [[noreturn]] void refuse(std::string_view why) const { throw Error(ErrorCode::kCorruptData, cat(path_, ": ", why)); }
  void count(std::string_view kind, std::string_view text = {}) { stats_.add(kind, place(text)); }
  std::string place(std::string_view text) const {
    return cat(path_, ": byte ", window_.offset(), text.empty() ? "" : ": ", text.substr(0, kExampleBytes));
  }
  std::string_view example(const ScannedEvent& event, const char* begin) const {
    return {begin, static_cast<size_t>(event.end - begin)};
  }

  void read_object();
  bool read_array(bool may_end);
  void read_after();
  bool skip_long_value();
  void read_metadata(std::string_view key, const Value& value);
  bool resync();

  void on_event(const ScannedEvent& event, const char* begin);
  void on_slice(const ScannedEvent& event, const char* begin, int64_t ts);
  void on_metadata(const ScannedEvent& event);
  void on_memory(const ScannedEvent& event, int64_t ts);
  void on_counter(const ScannedEvent& event, int64_t ts);
  void on_flow(const ScannedEvent& event, int64_t ts);
  void on_async(const ScannedEvent& event, int64_t ts, char phase);
  size_t add_slice(int64_t ts, int64_t dur, NameId name, uint8_t category, uint16_t lane);
  void add_arguments(const ScannedEvent& event, size_t index, Side side, NameId name);
  void add_comm(const ScannedEvent& event, size_t index);

  struct CategoryRef {
    uint8_t index = 0;
    Side side = Side::kHost;
    bool known = true;
  };
  CategoryRef category_of(const Value& cat);
  bool wants_arguments(const ScannedEvent& event) override;
  NameId name_of(const Value& value);
  NameId intern(const Value& value);
  uint8_t name_flags(NameId name);
  int64_t id_of(const Value& value);
  uint16_t host_lane(const ScannedEvent& event);
  uint16_t lane_of(bool device, int64_t process, int64_t id);
  std::optional<int64_t> time_of(const Value& value, std::string_view missing, const ScannedEvent& event,
                                 const char* begin);
  uint32_t compact(uint64_t id);
  int64_t integer(const ScannedEvent& event, Arg arg, int64_t missing) const;
  void close_open_slices();
  void resolve_unknown_categories();
  void name_lanes();

  detail::JsonWindow window_;
  detail::EventScanner scanner_;
  const std::string& path_;
  RankTrace& trace_;
  FileInfo& file_;
  ImportStats& stats_;

  ScannedEvent event_;
  bool found_array_ = false, ended_early_ = false;
  int64_t resync_bytes_ = 0;

  struct CachedCategory {
    uint64_t head = 0;  // Value::head of the text
    std::string text;
    CategoryRef ref;
  };
  // The last text that was interned, by where it lies: asked for by the filter, and again for the event.
  const char* last_name_at_ = nullptr;
  uint32_t last_name_size_ = 0;
  NameId last_name_ = 0;
  std::vector<CachedCategory> categories_;
  std::vector<uint8_t> name_flags_;

  struct CachedLane {
    int64_t process = 0, id = 0;
    uint16_t lane = 0;
    bool device = false, used = false;
  };
  std::array<CachedLane, 256> lane_cache_;
  uint64_t last_pid_ = 0, last_tid_ = 0;  // their texts; no number is 0 bytes
  uint16_t last_host_lane_ = 0;
  std::map<std::tuple<bool, int64_t, int64_t>, uint16_t> lanes_;
  std::map<std::pair<int64_t, int64_t>, NameId> thread_names_;
  std::map<int64_t, NameId> process_names_;

  detail::FlowSet flows_;
  std::unordered_map<uint64_t, uint32_t> wide_ids_;
  // Ends of slices that have a beginning and an end of their own (B and E, b and e); they are joined by time when all
  // are there, since events come in any order.
  struct Edge {
    int64_t ts = 0;
    uint64_t track = 0;
    size_t slice = kNoSlice;  // kNoSlice: an end
  };
  static constexpr size_t kNoSlice = SIZE_MAX;
  std::vector<Edge> edges_;
  std::vector<uint32_t> candidates_;  // of unknown category, with device and stream
  int64_t last_end_ = INT64_MIN;
};

int64_t Reader::id_of(const Value& value) {
  if (!value) return 0;
  if (value.kind == Kind::kNumber && value.size < 19) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data, value.data + value.size, number);
    if (error == std::errc() && end == value.data + value.size) return number;
  }
  // Numbers beyond those of texts are texts themselves.
  if (const auto number = detail::whole_number(value.text()); number && *number < kTextLaneId) return *number;
  return kTextLaneId + name_of(value);
}

uint16_t Reader::host_lane(const ScannedEvent& event) {
  // Events come in runs of one thread.
  const Value &pid = event.pid, &tid = event.tid;
  constexpr uint32_t kShort = 8;
  if (pid.kind != Kind::kNumber || tid.kind != Kind::kNumber || pid.size > kShort || tid.size > kShort) {
    return lane_of(false, id_of(pid), id_of(tid));
  }
  const uint64_t pid_text = pid.head(), tid_text = tid.head();
  if (pid_text != last_pid_ || tid_text != last_tid_) {
    last_host_lane_ = lane_of(false, id_of(pid), id_of(tid));
    last_pid_ = pid_text;
    last_tid_ = tid_text;
  }
  return last_host_lane_;
}

uint16_t Reader::lane_of(bool device, int64_t process, int64_t id) {
  CachedLane& cached =
      lane_cache_[(static_cast<uint64_t>(process) * 31 + static_cast<uint64_t>(id) * 7 + device) & 255];
  if (cached.used && cached.process == process && cached.id == id && cached.device == device) return cached.lane;
  const auto [entry, added] = lanes_.try_emplace({device, process, id}, static_cast<uint16_t>(trace_.lanes.size()));
  if (added) {
    if (trace_.lanes.size() >= UINT16_MAX) {
      entry->second = UINT16_MAX - 1;
    } else {
      trace_.lanes.push_back({device, process, id, 0, 0});
    }
  }
  cached = {process, id, entry->second, device, true};
  return entry->second;
}

NameId Reader::name_of(const Value& value) {
  if (!value) return 0;
  if (value.data == last_name_at_ && value.size == last_name_size_) return last_name_;
  last_name_at_ = value.data;
  last_name_size_ = value.size;
  last_name_ = intern(value);
  return last_name_;
}

NameId Reader::intern(const Value& value) {
  if (!value.escaped) return trace_.names.intern(value.text());
  return trace_.names.intern(unescape(value.text()));
}

uint8_t Reader::name_flags(NameId name) {
  if (name >= name_flags_.size()) name_flags_.resize(std::max<size_t>(name + 1, 2 * name_flags_.size()));
  uint8_t& flags = name_flags_[name];
  if (flags == 0) {
    const std::string& text = trace_.names[name];
    flags = flags_of_name(text);
    if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; })) {
      count("control_characters", text);
    }
  }
  return flags;
}

Reader::CategoryRef Reader::category_of(const Value& value) {
  const std::string_view text = value.kind == Kind::kString ? value.text() : std::string_view();
  const uint64_t head = text.empty() ? 0 : value.head();
  for (const CachedCategory& known : categories_) {
    const bool same = known.head == head && known.text.size() == text.size();
    if (same && (text.size() <= sizeof(head) || known.text == text)) return known.ref;
  }
  const std::string name = value.escaped ? unescape(text) : std::string(text);
  const std::optional<Side> side = side_of_category(name);
  CategoryRef ref{trace_.category(name, side.value_or(Side::kHost)), side.value_or(Side::kHost), side.has_value()};
  if (categories_.size() < 256) categories_.push_back({head, std::string(text), ref});
  return ref;
}

// Operators carry shapes and call stacks, which are most of many files; few operators' are of use.
bool Reader::wants_arguments(const ScannedEvent& event) {
  if (!event.cat || !event.name) return true;
  const CategoryRef category = category_of(event.cat);
  if (category.side == Side::kPython) return false;
  if (category.side != Side::kOperator && category.side != Side::kAnnotation) return true;
  return (name_flags(name_of(event.name)) & (kHasFlopsName | kCommunicatesName)) != 0;
}

std::optional<int64_t> Reader::time_of(const Value& value, std::string_view missing, const ScannedEvent& event,
                                       const char* begin) {
  if (!value || (value.kind == Kind::kLiteral && value.text() == "null")) {
    count(missing, example(event, begin));
    return std::nullopt;
  }
  std::optional<int64_t> ns;
  if (value.kind == Kind::kNumber || value.kind == Kind::kString) ns = detail::microseconds_to_ns(value.text());
  if (!ns) count("bad_number", example(event, begin));
  return ns;
}

// Ids are 32 bits in the store. Wider ones get a number of their own, from the top down.
uint32_t Reader::compact(uint64_t id) {
  if (id == UINT64_MAX || id == UINT32_MAX) return 0;  // -1: none
  if (id < UINT32_MAX - 1'000'000'000) return static_cast<uint32_t>(id);
  return wide_ids_.try_emplace(id, UINT32_MAX - 1 - static_cast<uint32_t>(wide_ids_.size())).first->second;
}

int64_t Reader::integer(const ScannedEvent& event, Arg arg, int64_t missing) const {
  const Value value = event.get(arg);
  return value ? detail::whole_number(value.text()).value_or(missing) : missing;
}

size_t Reader::add_slice(int64_t ts, int64_t dur, NameId name, uint8_t category, uint16_t lane) {
  Events& events = trace_.events;
  const size_t index = events.size();
  if (index >= UINT32_MAX - 1) refuse("more than 4 billion events: cut it with msprof slice");
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

void Reader::add_comm(const ScannedEvent& event, size_t index) {
  CommArgs comm;
  comm.op = name_of(event.get(Arg::kCollectiveName));
  comm.group = name_of(event.get(Arg::kGroupName));
  comm.ranks = name_of(event.get(Arg::kGroupRanks));
  comm.dtype = name_of(event.get(Arg::kDtype));
  comm.sequence = integer(event, Arg::kSeq, -1);
  comm.in_elements = integer(event, Arg::kInElements, 0);
  comm.out_elements = integer(event, Arg::kOutElements, 0);
  comm.comms_id = static_cast<uint64_t>(integer(event, Arg::kCommsId, 0));
  comm.source = static_cast<int32_t>(integer(event, Arg::kSourceRank, -1));
  comm.destination = static_cast<int32_t>(integer(event, Arg::kDestinationRank, -1));
  const Value async = event.get(Arg::kAsync);
  comm.async = async.kind == Kind::kLiteral && async.text() == "true";
  trace_.events.comm[index] = static_cast<uint32_t>(trace_.comms.size());
  trace_.comms.push_back(comm);
}

void Reader::add_arguments(const ScannedEvent& event, size_t index, Side side, NameId name) {
  Events& events = trace_.events;
  if (event.present == 0) return;
  const bool device = on_device(side);
  const uint8_t flags = device || side == Side::kLaunch ? 0 : name_flags(name);
  if (device || side == Side::kLaunch || event.has(Arg::kConnectionId)) {
    Value id = event.get(Arg::kCorrelation);
    if (!id) id = event.get(Arg::kConnectionId);
    if (id) events.correlation[index] = compact(static_cast<uint64_t>(detail::whole_number(id.text()).value_or(0)));
  }
  if (device || (flags & kCommunicatesName) != 0) {
    Value id = event.get(Arg::kExternalId);
    if (!id) id = event.get(Arg::kOldExternalId);
    if (id) events.external[index] = compact(static_cast<uint64_t>(detail::whole_number(id.text()).value_or(0)));
    if (event.has(Arg::kCollectiveName)) add_comm(event, index);
  }
  Details details;
  bool any = false;
  if (device) {
    details.flops = integer(event, Arg::kFlops, -1);
    details.bytes = integer(event, Arg::kBytes, -1);
    any = details.flops >= 0 || details.bytes >= 0;
  }
  if (side == Side::kDeviceSync) {
    const std::string_view kind = event.get(Arg::kSyncKind).text();
    details.sync_kind = static_cast<uint8_t>(kind == "Context Sync"        ? SyncKind::kContext
                                             : kind == "Stream Sync"       ? SyncKind::kStream
                                             : kind == "Event Sync"        ? SyncKind::kEvent
                                             : kind == "Stream Wait Event" ? SyncKind::kStreamWaitEvent
                                                                           : SyncKind::kNone);
    details.wait_stream = static_cast<int32_t>(integer(event, Arg::kWaitOnStream, -1));
    const Value record = event.get(Arg::kWaitOnCorrelation);
    if (record) {
      details.wait_correlation = compact(static_cast<uint64_t>(detail::whole_number(record.text()).value_or(0)));
    }
    any = true;
  }
  if ((flags & kHasFlopsName) != 0 && event.has(Arg::kInputDims)) {
    details.dims = name_of(event.get(Arg::kInputDims));
    details.types = name_of(event.get(Arg::kInputType));
    any = true;
  }
  if (!any) return;
  events.details[index] = static_cast<uint32_t>(trace_.details.size());
  trace_.details.push_back(details);
}

void Reader::on_slice(const ScannedEvent& event, const char* begin, int64_t ts) {
  int64_t dur = 0;
  if (const auto ns = time_of(event.dur, "missing_dur", event, begin)) dur = *ns;
  if (dur < 0) {
    count("negative_dur", example(event, begin));
    ++trace_.negative_dur;
    dur = 0;
  }
  CategoryRef category = category_of(event.cat);
  const NameId name = name_of(event.name);
  bool candidate = false;
  if (!category.known && event.has(Arg::kDevice) && event.has(Arg::kStream)) {
    candidate = true;
    category.side = Side::kDevice;
    category.index = trace_.category(trace_.names[trace_.categories[category.index].name], Side::kDevice);
  } else if (!event.cat && event.pid.kind == Kind::kString) {
    // The old autograd profiler: no categories, the process tells host from device.
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
    // Ascend's tasks: the lane says later that they are the device's, the type what they are.
    category.index = trace_.category(event.get(Arg::kTaskType).text(), Side::kHost);
  }
  uint16_t lane = 0;
  if (on_device(category.side)) {
    const Value device = event.get(Arg::kDevice), stream = event.get(Arg::kStream);
    const Value& track = stream ? stream : event.tid;
    lane = lane_of(true, id_of(device ? device : event.pid),
                   detail::stream_number(track.text()).value_or(track ? id_of(track) : 0));
  } else {
    lane = host_lane(event);
  }
  const size_t index = add_slice(ts, dur, name, category.index, lane);
  add_arguments(event, index, category.side, name);
  if (candidate) candidates_.push_back(static_cast<uint32_t>(index));
}

void Reader::on_metadata(const ScannedEvent& event) {
  const Value name = event.get(Arg::kName);
  if (!name) return;
  if (event.name.text() == "process_name") process_names_[id_of(event.pid)] = name_of(name);
  if (event.name.text() == "thread_name") thread_names_[{id_of(event.pid), id_of(event.tid)}] = name_of(name);
}

void Reader::on_memory(const ScannedEvent& event, int64_t ts) {
  MemoryChange change;
  change.ts = ts;
  change.address = integer(event, Arg::kAddress, 0);
  change.bytes = integer(event, Arg::kMemoryBytes, 0);
  change.total = integer(event, Arg::kTotalAllocated, -1);
  change.reserved = integer(event, Arg::kTotalReserved, -1);
  change.tag = name_of(event.get(Arg::kTag));
  change.lane = host_lane(event);
  change.device_type = static_cast<int16_t>(integer(event, Arg::kDeviceType, 0));
  change.device = static_cast<int16_t>(integer(event, Arg::kDeviceId, -1));
  trace_.memory.push_back(change);
}

// Calls member(key, value) for the members of an object; stops at what is damaged.
template <class Member>
void for_each_member(std::string_view object, Member&& member) {
  const char *p = object.data() + 1, *end = object.data() + object.size() - 1;
  for (p = detail::skip_space(p, end); p < end;) {
    Value key, value;
    const char* next = nullptr;
    // The object was scanned before, so the padding that block loads need is there.
    if (detail::skip_value(p, end, next, &key) != Scan::kWhole) return;
    p = detail::skip_space(next, end);
    if (p >= end || *p != ':') return;
    p = detail::skip_space(p + 1, end);
    if (p >= end) return;
    const Scan scan = detail::skip_value(p, object.data() + object.size(), next, &value);
    if (scan != Scan::kWhole) return;
    member(key, value);
    p = detail::skip_space(next, end);
    if (p < end && *p == ',') p = detail::skip_space(p + 1, end);
  }
}

void Reader::on_counter(const ScannedEvent& event, int64_t ts) {
  if (!event.args) return;
  const uint16_t lane = host_lane(event);
  const NameId name = name_of(event.name);
  for_each_member(event.args.text(), [&](const Value& key, const Value& value) {
    double number = 0;
    const auto [end, error] = std::from_chars(value.data, value.data + value.size, number);
    if (value.kind != Kind::kNumber || error != std::errc()) return;
    const bool plain = key.text() == "value" && !event.id;
    const NameId series = plain ? name
                                : trace_.names.intern(cat(trace_.names[name], event.id ? "/" : "",
                                                          event.id ? event.id.text() : "", ".", key.text()));
    trace_.counters.push_back({ts, number, series, lane});
  });
}

uint64_t mix(uint64_t a, uint64_t b) {
  const uint64_t pair[2] = {a, b};
  return kernels::xxh3(pair, sizeof(pair));
}

void Reader::on_flow(const ScannedEvent& event, int64_t ts) {
  const CategoryRef category = category_of(event.cat);
  const std::optional<int64_t> number = detail::whole_number(event.id.text());
  const uint64_t id =
      number ? static_cast<uint64_t>(*number) : kernels::xxh3(event.id.data, event.id.size) | uint64_t{1} << 63;
  const bool start = event.ph.data[0] == 's';
  if (event.ph.data[0] != 't' &&
      flows_.add(mix(mix(category.index, kernels::xxh3(event.name.data, event.name.size)), id), start)) {
    ++trace_.categories[category.index].complete_flows;
  }
  // Kineto's arrows say what correlations say; Ascend's are what there is.
  const std::string& name = trace_.names[trace_.categories[category.index].name];
  if (name == "HostToDevice" || name == "async_npu") {
    trace_.flows.push_back({ts, id, host_lane(event), category.index, start});
  }
}

void Reader::on_async(const ScannedEvent& event, int64_t ts, char phase) {
  const CategoryRef category = category_of(event.cat);
  const std::optional<int64_t> number = detail::whole_number(event.id.text());
  const uint64_t id = mix(number ? static_cast<uint64_t>(*number) : kernels::xxh3(event.id.data, event.id.size),
                          kernels::xxh3(event.scope.data, event.scope.size));
  const uint64_t track = mix(category.index, id) | 1;  // odd: no lane
  if (phase == 'b' || phase == 'S') {
    // A track of their own, so that they nest with nothing.
    const uint16_t lane = lane_of(false, id_of(event.pid), -2 - int64_t{category.index});
    const uint8_t host = trace_.category(trace_.names[trace_.categories[category.index].name], Side::kHost);
    edges_.push_back({ts, track, add_slice(ts, -1, name_of(event.name), host, lane)});
  } else if (phase == 'e' || phase == 'F') {
    edges_.push_back({ts, track, kNoSlice});
  }
}

void Reader::on_event(const ScannedEvent& event, const char* begin) {
  if (!event.ph || event.ph.kind != Kind::kString || event.ph.size != 1) {
    return count(event.ph && event.ph.size > 0 ? "unknown_ph" : "missing_ph", example(event, begin));
  }
  const char phase = event.ph.data[0];
  const PhaseUse use = kPhases[static_cast<unsigned char>(phase)];
  if (use == PhaseUse::kUnknown) return count("unknown_ph", example(event, begin));
  ++trace_.by_phase[static_cast<size_t>(phase)];
  ++file_.events;
  if (event.cat) ++trace_.categories[category_of(event.cat).index].events;
  if (phase == 'M') return on_metadata(event);
  if (use == PhaseUse::kCounted) return;
  const std::optional<int64_t> ts = time_of(event.ts, "missing_ts", event, begin);
  if (!ts) {
    if (event.ts) count("lost_events", example(event, begin));
    return;
  }
  switch (phase) {
    case 'X':
      return on_slice(event, begin, *ts);
    case 'B': {
      const CategoryRef category = category_of(event.cat);
      const uint16_t lane = host_lane(event);
      edges_.push_back({*ts, uint64_t{lane} * 2, add_slice(*ts, -1, name_of(event.name), category.index, lane)});
      return;
    }
    case 'E':
      edges_.push_back({*ts, uint64_t{host_lane(event)} * 2, kNoSlice});
      last_end_ = std::max(last_end_, *ts);
      return;
    case 'i':
    case 'I':
      if (event.name.text() == "[memory]") on_memory(event, *ts);
      return;
    case 'C':
      return on_counter(event, *ts);
    case 's':
    case 't':
    case 'f':
      return on_flow(event, *ts);
    default:
      return on_async(event, *ts, phase);
  }
}

// After a damaged event: to the next whole one, which must have a phase. False if there is none.
bool Reader::resync() {
  const std::string text(window_.begin(),
                         std::min<size_t>(kExampleBytes, static_cast<size_t>(window_.end() - window_.begin())));
  count("syntax", text);
  const char* p = window_.begin() + 1;
  while (true) {
    const char* brace = static_cast<const char*>(std::memchr(p, '{', static_cast<size_t>(window_.end() - p)));
    if (brace != nullptr && resync_bytes_ < kMaxResyncBytes) {
      last_name_at_ = nullptr;
      const Scan scan = scanner_.scan(brace, window_.end(), event_);
      resync_bytes_ += scan == Scan::kWhole ? event_.end - brace : 64;
      if (scan == Scan::kWhole && event_.ph && event_.ph.size == 1) {
        const char* next = detail::skip_space(event_.end, window_.end());
        if (next >= window_.end() || *next == ',' || *next == ']') {
          window_.use_up_to(brace);
          return true;
        }
      }
      if (scan != Scan::kCut) {
        p = brace + 1;
        continue;
      }
      resync_bytes_ += window_.end() - brace;
    }
    // Nothing whole in the window: keep what begins at the brace, if there is one.
    if (resync_bytes_ >= kMaxResyncBytes) return false;
    window_.use_up_to(brace == nullptr ? window_.end() : brace);
    const bool kept = brace != nullptr;
    if (!window_.refill()) {
      if (!kept) return false;
      p = window_.begin() + 1;  // what is cut at the end of the file; there may be a whole one behind
      const char* rest = static_cast<const char*>(std::memchr(p, '{', static_cast<size_t>(window_.end() - p)));
      if (rest == nullptr) return false;
      window_.use_up_to(rest);
      p = rest;
      continue;
    }
    p = window_.begin();
  }
}

// The events from '[' on. True if the array was closed.
bool Reader::read_array(bool may_end) {
  found_array_ = true;
  window_.use_up_to(window_.begin() + 1);
  while (true) {
    if (!window_.skip_space()) {
      if (!may_end) count("truncated", "the array of events is not closed");
      return false;
    }
    const char* p = window_.begin();
    if (*p == ',') {
      window_.use_up_to(p + 1);
      continue;
    }
    if (*p == ']') {
      window_.use_up_to(p + 1);
      return true;
    }
    if (*p != '{') {
      const char* next = nullptr;
      Scan scan = detail::skip_value(p, window_.end(), next);
      while (scan == Scan::kCut && window_.refill()) {
        p = window_.begin();
        scan = detail::skip_value(p, window_.end(), next);
      }
      if (scan == Scan::kWhole) {
        count("not_an_object", std::string_view(p, static_cast<size_t>(next - p)));
        window_.use_up_to(next);
        continue;
      }
      if (scan == Scan::kWrong && resync()) continue;
      if (scan == Scan::kCut)
        count("truncated",
              std::string_view(p, std::min<size_t>(kExampleBytes, static_cast<size_t>(window_.end() - p))));
      ended_early_ = true;
      return false;
    }
    Scan scan = scanner_.scan(p, window_.end(), event_, this);
    while (scan == Scan::kCut && window_.refill()) {
      last_name_at_ = nullptr;
      p = window_.begin();
      scan = scanner_.scan(p, window_.end(), event_, this);
    }
    if (scan == Scan::kWhole) {
      on_event(event_, p);
      last_name_at_ = nullptr;  // the window may move
      window_.use_up_to(event_.end);
      continue;
    }
    if (scan == Scan::kCut) {
      // The end of the file lies inside this event; damage may make it look so.
      const bool whole_window = window_.end() - p < static_cast<std::ptrdiff_t>(detail::JsonWindow::kMaxBytes) / 2;
      count("truncated", std::string_view(p, std::min<size_t>(kExampleBytes, static_cast<size_t>(window_.end() - p))));
      if (whole_window) {
        ended_early_ = true;
        return false;
      }
    }
    if (!resync()) {
      ended_early_ = true;
      return false;
    }
  }
}

void Reader::read_metadata(std::string_view key, const Value& value) {
  if (key == "baseTimeNanoseconds") {
    constexpr int64_t kMaxNs = int64_t{1} << 61;  // below it sums of times do not overflow
    if (const auto ns = detail::whole_number(value.text()); ns && *ns > -kMaxNs && *ns < kMaxNs) {
      trace_.base_unix_ns = *ns;
      trace_.has_base = true;
    }
  } else if (key == "displayTimeUnit") {
    trace_.display_time_unit = value.text();
  } else if (key == "schemaVersion") {
    trace_.schema_version = static_cast<int>(detail::whole_number(value.text()).value_or(-1));
  } else if (key == "distributedInfo" && value.kind == Kind::kObject) {
    try {
      const nlohmann::json info = core::parse_json(value.text(), key);
      const auto whole = [&](const char* member) {
        const auto found = info.find(member);
        constexpr int64_t kMaxRanks = int64_t{1} << 24;
        if (found == info.end() || !found->is_number_integer()) return -1;
        const auto number = found->get<int64_t>();
        return number >= 0 && number < kMaxRanks ? static_cast<int>(number) : -1;
      };
      trace_.rank = whole("rank");
      trace_.world_size = whole("world_size");
      if (const auto found = info.find("backend"); found != info.end() && found->is_string()) {
        trace_.backend = found->get<std::string>();
      }
    } catch (const Error& e) {
      count("syntax", e.what());
    }
  }
}

// Skips a value that may be longer than the window. False at the end of the stream, or at damage.
bool Reader::skip_long_value() {
  int64_t depth = 0;
  bool in_string = false, escaped = false;
  while (true) {
    for (const char* p = window_.begin(); p < window_.end(); ++p) {
      const char c = *p;
      if (in_string) {
        if (escaped) {
          escaped = false;
        } else if (c == '\\') {
          escaped = true;
        } else if (c == '"') {
          in_string = false;
          if (depth == 0) {
            window_.use_up_to(p + 1);
            return true;
          }
        }
        continue;
      }
      if (c == '"') in_string = true;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth <= 0) {
        window_.use_up_to(depth < 0 ? p : p + 1);
        return true;
      }
      if (depth == 0 && c == ',') {
        window_.use_up_to(p);
        return true;
      }
    }
    window_.use_up_to(window_.end());
    if (!window_.refill()) return false;
  }
}

void Reader::read_object() {
  window_.use_up_to(window_.begin() + 1);
  const auto cut = [&] {
    ended_early_ = true;
    if (found_array_) count("truncated", "the object is not closed");
  };
  while (true) {
    if (!window_.skip_space()) return cut();
    if (*window_.begin() == ',') {
      window_.use_up_to(window_.begin() + 1);
      continue;
    }
    if (*window_.begin() == '}') {
      window_.use_up_to(window_.begin() + 1);
      return;
    }
    if (*window_.begin() != '"') {
      if (!found_array_) refuse("is not JSON, or its \"traceEvents\" cannot be found behind the damage");
      count("syntax", "behind the events");
      ended_early_ = true;
      return;
    }
    const char* next = nullptr;
    Value key;
    while (detail::skip_value(window_.begin(), window_.end(), next, &key) == Scan::kCut) {
      if (!window_.refill()) return cut();
    }
    const std::string name(key.text().substr(0, 64));
    window_.use_up_to(next);
    if (!window_.skip_space()) return cut();
    if (*window_.begin() != ':') {
      if (!found_array_) refuse("is not JSON: a key without a value");
      count("syntax", name);
      ended_early_ = true;
      return;
    }
    window_.use_up_to(window_.begin() + 1);
    if (!window_.skip_space()) return cut();
    if (name == "traceEvents" && !found_array_) {
      if (*window_.begin() != '[') refuse("its \"traceEvents\" is no array");
      if (!read_array(false)) return;
      continue;
    }
    if (name == "baseTimeNanoseconds" || name == "displayTimeUnit" || name == "schemaVersion" ||
        name == "distributedInfo") {
      Value value;
      Scan scan = Scan::kCut;
      while ((scan = detail::skip_value(window_.begin(), window_.end(), next, &value)) == Scan::kCut) {
        if (!window_.refill()) return cut();
      }
      if (scan == Scan::kWhole) {
        read_metadata(name, value);
        window_.use_up_to(next);
        continue;
      }
    }
    if (!skip_long_value()) return cut();
  }
}

void Reader::read_after() {
  if (window_.skip_space()) {
    const char c = *window_.begin();
    if (c == '{' || c == '[') {
      count("extra_document");
    } else {
      count("trailing_bytes");
    }
  }
  window_.drain();
}

void Reader::close_open_slices() {
  Events& events = trace_.events;
  std::stable_sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) { return a.ts < b.ts; });
  std::unordered_map<uint64_t, std::vector<size_t>> open;
  for (const Edge& edge : edges_) {
    std::vector<size_t>& slices = open[edge.track];
    if (edge.slice != kNoSlice) {
      slices.push_back(edge.slice);
    } else if (slices.empty()) {
      count("unmatched_end", cat("at ", edge.ts, " ns"));
    } else {
      events.dur[slices.back()] = edge.ts - events.ts[slices.back()];
      slices.pop_back();
    }
  }
  for (const auto& [track, slices] : open) {
    for (const size_t i : slices) {
      count("unmatched_begin", trace_.names[events.name[i]]);
      events.dur[i] = std::max<int64_t>(0, last_end_ - events.ts[i]);
    }
  }
}

// Events of categories that nobody knows are device work if they have a device, a stream and a launch.
void Reader::resolve_unknown_categories() {
  if (candidates_.empty()) return;
  std::vector<uint32_t> launched;
  for (size_t i = 0; i < trace_.events.size(); ++i) {
    if (trace_.side(i) == Side::kLaunch && trace_.events.correlation[i] != 0) {
      launched.push_back(trace_.events.correlation[i]);
    }
  }
  std::sort(launched.begin(), launched.end());
  for (const uint32_t i : candidates_) {
    const std::string& name = trace_.names[trace_.categories[trace_.events.category[i]].name];
    stats_.add("unknown_category", name);
    const uint32_t id = trace_.events.correlation[i];
    if (id != 0 && std::binary_search(launched.begin(), launched.end(), id)) continue;
    trace_.events.category[i] = trace_.category(name, Side::kHost);
  }
}

void Reader::name_lanes() {
  // A stream may have any number, so also one that looks like that of a text.
  const auto is_text = [&](int64_t id) {
    return id >= kTextLaneId && id - kTextLaneId < static_cast<int64_t>(trace_.names.size());
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

bool Reader::read() {
  if (!window_.skip_space()) refuse(window_.bytes_read() == 0 ? "is empty" : "holds nothing but white space");
  if (window_.end() - window_.begin() >= 3 && std::string_view(window_.begin(), 3) == "\xef\xbb\xbf") {
    window_.use_up_to(window_.begin() + 3);
    if (!window_.skip_space()) refuse("is empty");
  }
  if (*window_.begin() == '[') {
    read_array(true);
  } else if (*window_.begin() == '{') {
    read_object();
  } else {
    refuse("is not JSON");
  }
  if (!found_array_) {
    if (ended_early_) refuse("ends, or is damaged, before its \"traceEvents\"");
    return false;
  }
  if (!ended_early_) read_after();
  window_.drain();
  file_.json_bytes = trace_.json_bytes = window_.bytes_read();
  trace_.file_rank = trace_.rank;
  close_open_slices();
  resolve_unknown_categories();
  name_lanes();
  assign_ascend_lanes(trace_);
  trace_.flow_ids = flows_.count();
  trace_.flow_pairs_complete = flows_.complete();
  finish_trace(trace_);
  return true;
}

}  // namespace

bool read_chrome_json(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file,
                      ImportStats& stats) {
  return Reader(stream, path, trace, file, stats).read();
}

}  // namespace ms::profile
