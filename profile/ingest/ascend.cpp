#include "profile/ingest/ascend.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/io/json.h"
#include "profile/ascend.h"
#include "profile/ingest/byte_stream.h"
#include "profile/ingest/chrome_json.h"
#include "profile/ingest/csv_reader.h"
#include "profile/ingest/detail/numbers.h"
#include "profile/intervals.h"

namespace ms::profile {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

constexpr size_t kMaxJsonBytes = size_t{1} << 28;

std::optional<double> real(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void raise(std::optional<double>& peak, const std::string& text) {
  const std::optional<double> value = real(text);
  if (value && (!peak || *value > *peak)) peak = value;
}

// The cell of an optional column; empty if the column is missing.
const std::string& cell(const std::vector<std::string>& row, int column) {
  static const std::string nothing;
  return column < 0 ? nothing : row[static_cast<size_t>(column)];
}

// Path of the file, plain or compressed.
std::string file_in(const std::string& folder, const std::string& name) {
  for (const char* packing : {"", ".gz", ".zst"}) {
    std::string path = (fs::path(folder) / (name + packing)).string();
    std::error_code error;
    if (fs::is_regular_file(path, error)) return path;
  }
  return {};
}

class Folder {
 public:
  Folder(const std::string& folder, int threads, RankTrace& trace, FileInfo& file, ImportStats& stats)
      : folder_(folder),
        output_(ascend_output_folder(folder)),
        threads_(threads),
        trace_(trace),
        file_(file),
        stats_(stats) {}

  void read() {
    const bool traced = read_trace_view() || read_database();
    if (trace_.ascend == nullptr) trace_.ascend = std::make_unique<AscendTables>();
    const bool kernels = table("kernel_details.csv", [&](CsvTable& csv) { read_kernels(csv, !traced); });
    bool any = table("step_trace_time.csv", [&](CsvTable& csv) { read_steps(csv); });
    any |= table("memory_record.csv", [&](CsvTable& csv) { read_memory(csv); });
    any |= table("operator_memory.csv", [&](CsvTable& csv) { read_operator_memory(csv); });
    read_links();
    read_rank();
    if (!traced && !kernels && !any)
      throw Error(ErrorCode::kCorruptData, cat(folder_, ": contains no file of an Ascend profile"));
    if (!traced) finish_trace(trace_);
  }

  // A kernel table that was copied out of its profile folder.
  void read_kernel_table(ByteStream& stream) {
    trace_.ascend = std::make_unique<AscendTables>();
    CsvTable csv(stream, folder_, stats_);
    read_kernels(csv, true);
    finish_trace(trace_);
  }

 private:
  bool read_trace_view() {
    std::string path = file_in(output_, "trace_view.json");
    if (path.empty()) path = first_with("msprof", ".json");
    if (path.empty()) return false;
    ImportStats packing;
    bool read = false;
    {
      const auto stream = open_bytes(path, packing, threads_);
      read = read_chrome_json(*stream, path, trace_, file_, stats_, {threads_, 0});
    }
    stats_.merge(packing);
    return read;
  }

  bool read_database() {
    std::string path = first_with("ascend_pytorch_profiler", ".db");
    if (path.empty()) path = first_with("ascend_mindspore_profiler", ".db");
    if (path.empty()) path = first_with("msprof", ".db");
    if (path.empty()) return false;
    read_ascend_database(text_of(path), path, trace_, file_, stats_);
    return true;
  }

  // "msprof_20240101.json", "msprof.json.gz", ...
  std::string first_with(const std::string& prefix, const std::string& suffix) const {
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(output_, error)) {
      std::string name = entry.path().filename().string();
      for (const char* packing : {".gz", ".zst"}) {
        if (name.ends_with(packing)) name.resize(name.size() - std::string_view(packing).size());
      }
      if (name.starts_with(prefix) && name.ends_with(suffix)) found.push_back(entry.path().string());
    }
    return found.empty() ? std::string() : *std::min_element(found.begin(), found.end());
  }

  std::string text_of(const std::string& path) {
    const auto stream = open_bytes(path, stats_, 1);
    std::string text;
    for (size_t got = 1, have = 0; got > 0; have += got) {
      if (have > kMaxJsonBytes)
        throw Error(ErrorCode::kCorruptData, cat(path, ": is too large for a file of its kind"));
      text.resize(have + (size_t{1} << 16) + have / 2);
      got = stream->read(text.data() + have, text.size() - have);
      if (got == 0) text.resize(have);
    }
    return text;
  }

  template <class Read>
  bool table(const std::string& name, Read&& read) {
    const std::string path = file_in(output_, name);
    if (path.empty()) return false;
    const auto stream = open_bytes(path, stats_, 1);
    CsvTable csv(*stream, path, stats_);
    read(csv);
    return true;
  }

  // add_events: there is no trace file, so the rows become the device events.
  void read_kernels(CsvTable& csv, bool add_events) {
    const int name = csv.need({"Name", "Op Name"}), start = csv.need({"Start Time(us)", "Task Start Time(us)"}),
              duration = csv.need({"Duration(us)", "Task Duration(us)"});
    const int type = csv.find({"Type", "OP Type"}), core = csv.find({"Accelerator Core", "Task Type"}),
              wait = csv.find({"Wait Time(us)", "Task Wait Time(us)"}), stream = csv.find({"Stream ID"});
    AscendKernels& kernels = trace_.ascend->kernels.emplace();
    kernels.columns = static_cast<int64_t>(csv.header().size());
    std::vector<Interval> intervals;
    std::vector<std::string> row;
    while (csv.next(row)) {
      const auto ts = detail::microseconds_to_ns(cell(row, start)),
                 dur = detail::microseconds_to_ns(cell(row, duration));
      if (!ts || !dur || *dur < 0) {
        stats_.add("bad_number", cat(folder_, ": kernel_details.csv: ", cell(row, name)));
        continue;
      }
      ++kernels.rows;
      std::string on = cell(row, core), kind = cell(row, type);
      if (on.empty()) on = "N/A";
      if (kind.empty()) kind = "N/A";
      AscendSum& by_core = kernels.by_core[on];
      ++by_core.count;
      by_core.ns += *dur;
      AscendSum& by_type = kernels.by_type[kind];
      ++by_type.count;
      by_type.ns += *dur;
      kernels.wait_ns += detail::microseconds_to_ns(cell(row, wait)).value_or(0);
      const bool collective = on == "HCCL" || on == "COMMUNICATION" || cell(row, name).starts_with("hcom_");
      if (!collective) intervals.push_back({*ts, *ts + *dur});
      if (add_events) add_kernel(*ts, *dur, cell(row, name), on, cell(row, stream));
    }
    kernels.union_without_hccl_ns = IntervalSet(std::move(intervals)).length();
  }

  void add_kernel(int64_t ts, int64_t dur, const std::string& name, const std::string& core,
                  const std::string& stream) {
    const int64_t id = detail::whole_number(stream).value_or(0);
    auto lane = std::find_if(trace_.lanes.begin(), trace_.lanes.end(), [&](const Lane& l) { return l.id == id; });
    if (lane == trace_.lanes.end()) {
      if (trace_.lanes.size() >= UINT16_MAX) return;
      trace_.lanes.push_back({true, 0, id, 0, 0});
      lane = trace_.lanes.end() - 1;
    }
    Events& events = trace_.events;
    events.ts.push_back(ts);
    events.dur.push_back(dur);
    events.name.push_back(trace_.names.intern(name));
    const uint8_t category = trace_.category(core, Side::kDevice);
    ++trace_.categories[category].events;
    events.category.push_back(category);
    events.lane.push_back(static_cast<uint16_t>(lane - trace_.lanes.begin()));
    for (Column<uint32_t>* column : {&events.correlation, &events.external, &events.comm, &events.details}) {
      column->push_back(0);
    }
    ++trace_.by_phase['X'];
    ++file_.events;
  }

  void read_steps(CsvTable& csv) {
    const int step = csv.need({"Step"}), computing = csv.need({"Computing"}),
              exposed = csv.need({"Communication(Not Overlapped)"}), overlapped = csv.need({"Overlapped"}),
              communication = csv.need({"Communication"}), free = csv.need({"Free"});
    const int stage = csv.find({"Stage"}), bubble = csv.find({"Bubble"}), preparing = csv.find({"Preparing"});
    std::vector<std::string> row;
    while (csv.next(row)) {
      const auto ns = [&](int column) { return detail::microseconds_to_ns(cell(row, column)).value_or(0); };
      trace_.ascend->steps.push_back({cell(row, step), ns(computing), ns(exposed), ns(overlapped), ns(communication),
                                      ns(free), ns(stage), ns(bubble), ns(preparing)});
    }
  }

  void read_memory(CsvTable& csv) {
    const int component = csv.need({"Component"});
    csv.need({"Timestamp(us)", "Timestamp(ms)"});
    const int allocated = csv.find({"Total Allocated(MB)"}), reserved = csv.find({"Total Reserved(MB)"}),
              active = csv.find({"Total Active(MB)"});
    std::vector<std::string> row;
    while (csv.next(row)) {
      AscendPeaks& peaks = trace_.ascend->memory[cell(row, component)];
      ++peaks.rows;
      raise(peaks.allocated_mb, cell(row, allocated));
      raise(peaks.reserved_mb, cell(row, reserved));
      raise(peaks.active_mb, cell(row, active));
    }
  }

  void read_operator_memory(CsvTable& csv) {
    const int name = csv.need({"Name"}), size = csv.need({"Size(KB)"});
    csv.need({"Allocation Time(us)"});
    const int release = csv.find({"Release Time(us)"}), allocated = csv.find({"Allocation Total Allocated(MB)"});
    AscendOperatorMemory& memory = trace_.ascend->operator_memory.emplace();
    std::vector<std::string> row;
    while (csv.next(row)) {
      const std::optional<double> kb = real(cell(row, size));
      if (!kb) {
        stats_.add("bad_number", cat(folder_, ": operator_memory.csv: ", cell(row, name)));
        continue;
      }
      ++memory.rows;
      memory.size_sum_kb += *kb;
      if (*kb > memory.largest_kb) {
        memory.largest_kb = *kb;
        memory.largest_name = cell(row, name);
      }
      if (release >= 0 && cell(row, release).empty()) ++memory.never_released;
      raise(memory.peak_allocated_mb, cell(row, allocated));
    }
  }

  void read_links() {
    const std::string path = file_in(output_, "communication_matrix.json");
    if (path.empty()) return;
    try {
      const nlohmann::json matrix = core::parse_json(text_of(path), path);
      for (const auto& step : matrix) {
        for (const auto& kind : step) {
          for (const auto& [operation, links] : kind.items()) {
            if (operation.find("-total") == std::string::npos) continue;
            for (const auto& [ends, link] : links.items()) {
              if (!link.is_object()) continue;
              trace_.ascend->links.push_back({ends, link.value("Transport Type", std::string()),
                                              link.value("Transit Size(MB)", 0.0),
                                              link.value("Transit Time(ms)", 0.0)});
            }
          }
        }
      }
    } catch (const nlohmann::json::exception& e) {
      stats_.add("unreadable_file", cat(path, ": ", e.what()));
    } catch (const Error& e) {
      stats_.add("unreadable_file", e.what());
    }
  }

  // profiler_info_3.json belongs to rank 3.
  void read_rank() {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_, error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("profiler_info") || !name.ends_with(".json")) continue;
      try {
        const nlohmann::json info = core::parse_json(text_of(entry.path().string()), name);
        const auto found = info.is_object() ? info.find("rank_id") : info.end();
        constexpr int64_t kMaxRanks = int64_t{1} << 24;
        if (info.is_object() && found != info.end() && found->is_number_integer()) {
          const auto rank = found->get<int64_t>();
          if (rank >= 0 && rank < kMaxRanks) trace_.rank = static_cast<int>(rank);
        }
      } catch (const Error& e) {
        stats_.add("unreadable_file", e.what());
      }
      if (trace_.rank < 0) {
        constexpr size_t kDigits = sizeof("profiler_info_") - 1;
        const auto digits = detail::whole_number(std::string_view(name).substr(
            std::min(kDigits, name.size()), name.size() - std::min(kDigits, name.size()) - 5));
        if (digits && *digits >= 0 && *digits < (int64_t{1} << 24)) trace_.rank = static_cast<int>(*digits);
      }
    }
    trace_.file_rank = trace_.rank;
  }

  const std::string& folder_;
  std::string output_;
  int threads_;
  RankTrace& trace_;
  FileInfo& file_;
  ImportStats& stats_;
};

}  // namespace

std::string ascend_output_folder(const std::string& folder) {
  for (const char* name : {"ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output"}) {
    const fs::path output = fs::path(folder) / name;
    std::error_code error;
    if (fs::is_directory(output, error)) return output.string();
  }
  return {};
}

void read_ascend_folder(const std::string& folder, int threads, RankTrace& trace, FileInfo& file, ImportStats& stats) {
  Folder(folder, threads, trace, file, stats).read();
}

void read_ascend_kernels(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file,
                         ImportStats& stats) {
  Folder(path, 1, trace, file, stats).read_kernel_table(stream);
}

}  // namespace ms::profile
