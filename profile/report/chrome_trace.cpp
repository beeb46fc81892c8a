#include "profile/report/chrome_trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/io/json.h"
#include "profile/ingest/detail/json_text.h"
#include "profile/ingest/detail/numbers.h"
#include "profile/ingest/kineto_words.h"
#include "profile/ingest/source_arguments.h"
#include "profile/report/export_clock.h"
#include "profile/report/json_writer.h"
#include "profile/report/own_info.h"

namespace ms::profile {
namespace {

// Like core::cat, but without its stream, which took more than half of the time of a conversion.
void put(std::string& out, std::string_view text) { out += text; }
template <std::integral Integer>
void put(std::string& out, Integer value) {
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof(text), value).ptr);
}
template <class... Args>
std::string cat(const Args&... args) {
  std::string out;
  (put(out, args), ...);
  return out;
}

// In a merged trace, streams and threads of a rank share one process id; this offset keeps their ids apart.
constexpr int64_t kMergedStreamBase = 1'000'000'000;

std::string_view kernel_of(std::string_view op) {
  static const std::map<std::string_view, std::string_view> kNames = {
      {"allreduce", "AllReduce"}, {"allgather", "AllGather"}, {"reduce_scatter", "ReduceScatter"},
      {"bcast", "Broadcast"},     {"alltoall", "AllToAll"},   {"gather", "Gather"},
      {"send", "Send"},           {"recv", "Recv"},           {"barrier", "Barrier"}};
  const auto found = kNames.find(op);
  return found == kNames.end() ? op : found->second;
}

// The names of a rank as JSON strings, each escaped once rather than once per event.
class Escaped {
 public:
  explicit Escaped(const RankTrace& trace) : trace_(trace), texts_(trace.names.size()) {}
  const std::string& operator[](NameId id) {
    if (texts_[id].empty()) texts_[id] = json_string(trace_.names[id]);
    return texts_[id];
  }

 private:
  const RankTrace& trace_;
  std::vector<std::string> texts_;
};

class RankWriter {
 public:
  // origin: common time of ts 0.
  RankWriter(const RankTrace& trace, OutputFile& out, bool merged, const CommonClock& clock, int64_t origin,
             uint32_t correlation_base, std::span<const uint32_t> critical, std::vector<const FileInfo*> sources)
      : trace_(trace),
        out_(out),
        names_(trace),
        merged_(merged),
        origin_(origin),
        base_(correlation_base),
        clock_(clock),
        critical_(critical),
        sources_(std::move(sources)) {}

  void write(bool& first) {
    first_ = &first;
    write_metadata();
    if (sources_.empty()) {
      for (size_t i = 0; i < trace_.events.size(); ++i) write_slice(i);
    } else {
      write_slices_of_sources();
    }
    for (size_t n = 1; n < critical_.size(); ++n) write_critical_flow(n);
    for (const MemoryChange& change : trace_.memory) write_memory(change);
    for (const CounterSample& sample : trace_.counters) write_counter(sample);
  }

  // The largest id in arguments that were copied from files.
  int64_t largest_id() const { return largest_id_; }
  // Kineto's deviceProperties array from the rank's files, as JSON text; empty: unknown.
  const std::string& device_properties() const { return device_properties_; }

 private:
  void emit(const std::string& event) {
    out_.write(*first_ ? "\n  " : ",\n  ");
    out_.write(event);
    *first_ = false;
  }
  std::string number_or_text(int64_t id) const {
    const bool text = id >= kTextLaneId && id < kTextLaneId + static_cast<int64_t>(trace_.names.size());
    return text ? json_string(trace_.names[static_cast<NameId>(id - kTextLaneId)]) : cat(id);
  }
  int64_t pid(const Lane& lane) const { return merged_ ? trace_.rank : lane.process; }
  int64_t tid(const Lane& lane) const { return merged_ && lane.device ? kMergedStreamBase + lane.id : lane.id; }
  std::string time(int64_t ts) const { return microseconds(clock_(ts) - origin_); }
  std::string place(uint16_t lane) const {
    return cat("\"pid\": ", number_or_text(pid(trace_.lanes[lane])),
               ", \"tid\": ", number_or_text(tid(trace_.lanes[lane])));
  }

  void write_metadata() {
    const auto metadata = [&](std::string_view what, int64_t process, int64_t thread, std::string_view value) {
      emit(cat("{\"ph\": \"M\", \"name\": \"", what, "\", \"ts\": 0.000, \"pid\": ", number_or_text(process),
               ", \"tid\": ", number_or_text(thread), ", \"args\": {", value, "}}"));
    };
    std::set<int64_t> processes;
    for (const Lane& lane : trace_.lanes) {
      if (processes.insert(pid(lane)).second) {
        const std::string& own = trace_.names[lane.process_name];
        const std::string name = merged_ ? cat("rank ", trace_.rank) : own.empty() ? "mstrain" : own;
        metadata("process_name", pid(lane), 0, cat("\"name\": ", json_string(name)));
        metadata("process_labels", pid(lane), 0,
                 cat("\"labels\": \"",
                     merged_       ? ""
                     : lane.device ? "device 0, "
                                   : "host, ",
                     "rank ", trace_.rank, "\""));
        metadata("process_sort_index", pid(lane), 0,
                 cat("\"sort_index\": ", merged_       ? trace_.rank
                                         : lane.device ? 5000000
                                                       : 0));
      }
      const std::string& name = trace_.names[lane.name];
      if (!name.empty() || trace_.meta.empty()) {
        metadata("thread_name", pid(lane), tid(lane),
                 cat("\"name\": ", json_string(name.empty() ? cat("thread ", lane.id) : name)));
      }
      metadata("thread_sort_index", pid(lane), tid(lane), cat("\"sort_index\": ", tid(lane)));
    }
  }

  std::string stack_text(uint32_t frame) const {
    std::string text;
    for (; frame != 0; frame = trace_.stacks[frame].parent) {
      const std::string& name = trace_.names[trace_.stacks[frame].name];
      text = text.empty() ? name : name + ";" + text;
    }
    return text;
  }

  // With the arguments from their files, in file order.
  void write_slices_of_sources() {
    const Events& events = trace_.events;
    std::vector<uint32_t> order(events.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return events.file_order[a] < events.file_order[b]; });
    auto next = order.begin();
    uint32_t first = 0;
    for (const FileInfo* source : sources_) {
      SourceFacts facts = read_arguments(*source, [&](uint32_t slice, std::string_view arguments) {
        if (next != order.end() && events.file_order[*next] == first + slice) write_slice(*next++, arguments);
      });
      first += facts.slices;
      if (device_properties_.empty()) device_properties_ = std::move(facts.device_properties);
    }
    MS_CHECK(next == order.end(), order.end() - next, " slices are in no file");
  }

  // The members of an event's arguments from its file, with ids made unique in the output; empty if they are not valid
  // JSON.
  std::string foreign_arguments(std::string_view text, uint32_t correlation) {
    std::string args;
    if (!nlohmann::json::accept(text)) return args;
    detail::for_each_member(text, [&](const detail::Value& key, const detail::Value& value) {
      const std::string_view name = key.text();
      const bool is_correlation = name == "correlation";
      put(args, cat(args.empty() ? "\"" : ", \"", name, "\": "));
      if (is_correlation || name == "External id" || name == "external id" ||
          name == "wait_on_cuda_event_record_corr_id") {
        const std::optional<int64_t> id = detail::whole_number(value.text());
        if (id && *id > 0) {
          const int64_t unique = is_correlation && correlation != 0 ? int64_t{correlation} : *id + base_;
          largest_id_ = std::max(largest_id_, unique);
          return put(args, unique);
        }
      }
      if (value.kind == detail::Kind::kString) return put(args, cat("\"", value.text(), "\""));
      put(args, value.text());
    });
    return args;
  }

  // source: the arguments from the event's file; empty: unknown.
  void write_slice(size_t i, std::string_view source = {}) {
    const Events& events = trace_.events;
    const Side side = trace_.side(i);
    const Lane& lane = trace_.lanes[events.lane[i]];
    const uint32_t correlation = events.correlation[i] == 0 ? 0 : events.correlation[i] + base_;
    const std::string at = place(events.lane[i]), ts = time(events.ts[i]);
    if (std::string args = foreign_arguments(source, correlation); !args.empty()) {
      emit_slice(i, names_[events.name[i]], args, at, ts);
      return write_flow(side, correlation, at, ts);
    }
    std::string name = names_[events.name[i]];
    std::string args;
    const auto argument = [&args](std::string_view key, const auto& value) {
      args += cat(args.empty() ? "\"" : ", \"", key, "\": ", value);
    };
    if (is_device_work(side) || side == Side::kDeviceSync) {
      argument("device", lane.process);
      argument("context", 1);
      argument("stream", trace_.details[events.details[i]].unsigned_stream ? int64_t{UINT32_MAX} : lane.id);
    }
    const uint32_t external = events.external[i] != 0 ? events.external[i] : correlation;
    if (external != 0) argument("External id", external);
    if (correlation != 0) argument("correlation", correlation);
    if (const uint32_t row = events.comm[i]; row != 0) {
      const CommArgs& comm = trace_.comms[row];
      if (trace_.backend.empty())
        name = json_string(cat("ncclDevKernel_", kernel_of(trace_.names[comm.op]), "(", trace_.names[comm.group], ")"));
      argument("Collective name", names_[comm.op]);
      argument("In msg nelems", comm.in_elements);
      argument("Out msg nelems", comm.out_elements);
      const std::string& ranks = trace_.names[comm.ranks];
      argument("Group size", ranks.size() <= 2 ? 0 : std::count(ranks.begin(), ranks.end(), ',') + 1);
      argument("dtype", json_string(kineto_dtype(trace_.names[comm.dtype])));
      argument("Process Group Name", names_[comm.group]);
      argument("Process Group Description", names_[comm.group]);
      argument("Process Group Ranks", names_[comm.ranks]);
      if (comm.sequence >= 0) argument("Seq", comm.sequence);
      if (comm.comms_id != 0) argument("Comms Id", comm.comms_id);
      if (comm.source >= 0) argument("Src Rank", comm.source);
      if (comm.destination >= 0) argument("Dst Rank", comm.destination);
      if (comm.async) argument("Is async", "true");
    }
    if (const uint32_t row = events.details[i]; row != 0) {
      const Details& details = trace_.details[row];
      if (details.flops >= 0) argument("flops", details.flops);
      if (details.bytes >= 0) argument("bytes", details.bytes);
      if (details.microbatch >= 0) argument("microbatch", details.microbatch);
      if (details.chunk >= 0) argument("chunk", details.chunk);
      if (details.dims != 0) argument("Input Dims", trace_.names[details.dims]);  // dims and types are JSON
      if (details.types != 0) argument("Input type", trace_.names[details.types]);
      if (details.sync_kind != 0) {
        argument("cuda_sync_kind", json_string(sync_kind_name(static_cast<SyncKind>(details.sync_kind))));
        argument("wait_on_stream", details.wait_stream);
        argument("wait_on_cuda_event_record_corr_id",
                 details.wait_correlation == 0 ? 0 : details.wait_correlation + base_);
      }
      if (details.stack != 0) argument("Call stack", json_string(stack_text(details.stack)));
    }
    if (next_critical_ < critical_.size() && critical_[next_critical_] == i) {
      argument("critical", 1);
      ++next_critical_;
    }
    emit_slice(i, name, args, at, ts);
    write_flow(side, correlation, at, ts);
  }

  void emit_slice(size_t i, std::string_view name, std::string_view args, std::string_view at, std::string_view ts) {
    const Events& events = trace_.events;
    emit(cat("{\"ph\": \"X\", \"cat\": ", names_[trace_.categories[events.category[i]].name], ", \"name\": ", name,
             ", ", at, ", \"ts\": ", ts, ", \"dur\": ", microseconds(events.dur[i]), ", \"args\": {", args, "}}"));
  }

  void write_flow(Side side, uint32_t correlation, std::string_view at, std::string_view ts) {
    if (correlation == 0) return;
    if (side == Side::kLaunch) {
      emit(cat("{\"ph\": \"s\", \"cat\": \"ac2g\", \"name\": \"ac2g\", \"id\": ", correlation, ", ", at,
               ", \"ts\": ", ts, "}"));
    } else {
      emit(cat("{\"ph\": \"f\", \"bp\": \"e\", \"cat\": \"ac2g\", \"name\": \"ac2g\", \"id\": ", correlation, ", ", at,
               ", \"ts\": ", ts, "}"));
    }
  }

  // A flow from inside the previous slice, near its end, to the start of this one.
  void write_critical_flow(size_t n) {
    const Events& events = trace_.events;
    const uint32_t from = critical_[n - 1], to = critical_[n];
    const int64_t leaves = std::max(events.ts[from], std::min(events.end(from) - 1, events.ts[to]));
    constexpr std::string_view kFlow = "\"cat\": \"critical_path\", \"name\": \"critical_path\", \"id\": ";
    emit(cat("{\"ph\": \"s\", ", kFlow, n, ", ", place(events.lane[from]), ", \"ts\": ", time(leaves), "}"));
    emit(cat("{\"ph\": \"f\", \"bp\": \"e\", ", kFlow, n, ", ", place(events.lane[to]),
             ", \"ts\": ", time(events.ts[to]), "}"));
  }

  void write_memory(const MemoryChange& change) {
    emit(cat("{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\", ",
             place(change.lane), ", \"ts\": ", time(change.ts), ", \"args\": {\"Addr\": ", change.address,
             ", \"Bytes\": ", change.bytes, ", \"Device Type\": ", change.device_type,
             ", \"Device Id\": ", change.device, ", \"Total Allocated\": ", change.total, ", \"Total Reserved\": ",
             change.reserved < 0 ? change.total : change.reserved, ", \"Tag\": ", names_[change.tag], "}}"));
  }

  void write_counter(const CounterSample& sample) {
    if (!std::isfinite(sample.value)) return;  // not representable in JSON
    char value[40];
    std::snprintf(value, sizeof(value), "%.17g", sample.value);
    emit(cat("{\"ph\": \"C\", \"name\": ", names_[sample.name], ", ", place(sample.lane), ", \"ts\": ", time(sample.ts),
             ", \"args\": {\"value\": ", value, "}}"));
  }

  const RankTrace& trace_;
  OutputFile& out_;
  Escaped names_;
  bool merged_;
  int64_t origin_;
  uint32_t base_;
  const CommonClock& clock_;
  std::span<const uint32_t> critical_;
  size_t next_critical_ = 0;
  std::vector<const FileInfo*> sources_;
  int64_t largest_id_ = 0;
  std::string device_properties_;
  bool* first_ = nullptr;
};

std::string distributed_info(const std::vector<const RankTrace*>& ranks) {
  std::map<std::pair<std::string, std::string>, int64_t> groups;  // name, ranks -> size
  for (const RankTrace* trace : ranks) {
    for (size_t i = 1; i < trace->comms.size(); ++i) {
      const std::string& members = trace->names[trace->comms[i].ranks];
      groups[{trace->names[trace->comms[i].group], members}] =
          members.size() <= 2 ? 0 : std::count(members.begin(), members.end(), ',') + 1;
    }
  }
  const std::string& backend = ranks[0]->backend;
  std::string out = cat("{\"backend\": ", json_string(backend.empty() ? "mpi" : backend));
  if (ranks.size() == 1)
    out += cat(", \"rank\": ", ranks[0]->rank);  // HTA's regular expression needs the blank after the colon
  out += cat(", \"world_size\": ", std::max(ranks[0]->world_size, static_cast<int>(ranks.size())),
             ", \"pg_count\": ", groups.size(), ", \"pg_config\": [");
  bool first = true;
  for (const auto& [group, size] : groups) {
    out += cat(first ? "" : ", ", "{\"pg_name\": ", json_string(group.first),
               ", \"pg_desc\": ", json_string(group.first), ", \"backend_config\": \"cpu:mpi\", \"pg_size\": ", size,
               ", \"ranks\": ", group.second.starts_with('[') ? group.second : "[]", "}");
    first = false;
  }
  return out + "]}";
}

// The parts of a native trace that Kineto has no field for, needed to restore it.
std::string own_key(const RankTrace& trace, int64_t origin) {
  return trace.meta.empty() ? std::string() : cat("\"msuite\": ", own_info(trace, origin), ",\n");
}

// The files of a rank, if all of them are other programs' Chrome JSON and can be read again; else empty.
std::vector<const FileInfo*> sources_of(const RankTrace& trace, std::span<const FileInfo> files) {
  std::vector<const FileInfo*> out;
  if (!trace.keep_file_order || !trace.meta.empty()) return out;
  for (const FileInfo& file : files) {
    if (file.rank != trace.rank) continue;
    if (file.format != "chrome_json" || !std::filesystem::is_regular_file(file.path)) return {};
    out.push_back(&file);
  }
  return out;
}

}  // namespace

void write_chrome_trace(const std::vector<const RankTrace*>& ranks, OutputFile& out, std::span<const uint32_t> critical,
                        std::span<const FileInfo> files) {
  MS_CHECK(!ranks.empty(), "no rank to write");
  const bool merged = ranks.size() > 1;
  const ExportClock clock = export_clock(ranks);
  std::string devices;
  out.write(cat("{\n\"schemaVersion\": 1,\n\"distributedInfo\": ", distributed_info(ranks),
                ",\n\"displayTimeUnit\": \"ms\",\n"
                "\"baseTimeNanoseconds\": ",
                clock.unix_origin, ",\n\"producer\": \"msuite\",\n",
                merged ? std::string() : own_key(*ranks[0], clock.origin), "\"traceEvents\": ["));
  bool first = true;
  uint32_t correlation_base = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankTrace* trace = ranks[r];
    RankWriter writer(*trace, out, merged, clock.ranks[r], clock.origin, correlation_base,
                      r == 0 ? critical : std::span<const uint32_t>(),
                      critical.empty() ? sources_of(*trace, files) : std::vector<const FileInfo*>());
    writer.write(first);
    if (devices.empty()) devices = writer.device_properties();
    uint32_t largest = 0;
    for (const uint32_t id : trace->events.correlation) largest = std::max(largest, id);
    const auto written =
        static_cast<uint32_t>(std::clamp<int64_t>(writer.largest_id() - correlation_base, 0, kFirstWideId));
    correlation_base += std::max(largest, written);
  }
  if (devices.empty()) devices = R"([{"id": 0, "name": "CPU"}])";
  out.write(cat("\n],\n\"deviceProperties\": ", devices, "}\n"));
}

}  // namespace ms::profile
