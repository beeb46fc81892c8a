#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "core/error.h"
#include "profile/ascend.h"
#include "profile/ingest/ascend.h"
#include "profile/ingest/ascend_lanes.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

using Connection = std::unique_ptr<sqlite3, int (*)(sqlite3*)>;
using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

class Reader {
 public:
  Reader(std::string bytes, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats)
      : path_(path), trace_(trace), file_(file), stats_(stats), bytes_(std::move(bytes)) {
    sqlite3* opened = nullptr;
    if (sqlite3_open_v2(":memory:", &opened, SQLITE_OPEN_READWRITE, nullptr) != SQLITE_OK) throw std::bad_alloc();
    database_.reset(opened);
    // SQLite cannot open a database with a write-ahead log (header bytes 18 and 19) in memory; the log is not available
    // here anyway.
    constexpr size_t kVersions = 18;
    if (bytes_.size() > kVersions + 1) bytes_[kVersions] = bytes_[kVersions + 1] = 1;
    const auto size = static_cast<sqlite3_int64>(bytes_.size());
    const int status = sqlite3_deserialize(opened, "main", reinterpret_cast<unsigned char*>(bytes_.data()), size, size,
                                           SQLITE_DESERIALIZE_READONLY);
    if (status != SQLITE_OK) refuse("it cannot be opened");
    sqlite3_exec(opened, "PRAGMA trusted_schema=0; PRAGMA cell_size_check=1", nullptr, nullptr, nullptr);
  }

  void read() {
    if (!has("STRING_IDS") || !has("TASK"))
      refuse("it has no tables STRING_IDS and TASK, so it is not an Ascend profile");
    each("SELECT id, value FROM STRING_IDS",
         [&](sqlite3_stmt* row) { strings_[sqlite3_column_int64(row, 0)] = trace_.names.intern(text(row, 1)); });
    read_tasks();
    read_collectives();
    read_host();
    if (has("RANK_DEVICE_MAP")) {
      each("SELECT rankId FROM RANK_DEVICE_MAP LIMIT 1", [&](sqlite3_stmt* row) {
        const int64_t rank = sqlite3_column_int64(row, 0);
        if (rank >= 0 && rank < (int64_t{1} << 24)) trace_.rank = static_cast<int>(rank);
      });
    }
    trace_.file_rank = trace_.rank;
    trace_.by_phase['X'] = static_cast<int64_t>(trace_.events.size());
    file_.events = trace_.by_phase['X'];
    for (size_t i = 0; i < trace_.events.size(); ++i) ++trace_.categories[trace_.events.category[i]].events;
    assign_ascend_lanes(trace_);
    finish_trace(trace_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    const bool said = sqlite3_errcode(database_.get()) != SQLITE_OK;
    throw Error(ErrorCode::kCorruptData,
                cat(path_, ": ", why, said ? ": " : "", said ? sqlite3_errmsg(database_.get()) : ""));
  }
  static std::string_view text(sqlite3_stmt* row, int column) {
    const unsigned char* bytes = sqlite3_column_text(row, column);
    if (bytes == nullptr) return {};
    return {reinterpret_cast<const char*>(bytes), static_cast<size_t>(sqlite3_column_bytes(row, column))};
  }

  bool has(const char* table) const {
    bool found = false;
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v2(database_.get(), "SELECT 1 FROM sqlite_master WHERE type='table' AND name=?", -1, &made,
                           nullptr) == SQLITE_OK) {
      const Statement statement(made, sqlite3_finalize);
      sqlite3_bind_text(made, 1, table, -1, SQLITE_STATIC);
      found = sqlite3_step(made) == SQLITE_ROW;
    }
    return found;
  }

  template <class Row>
  void each(const std::string& sql, Row&& take) {
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &made, nullptr) != SQLITE_OK)
      refuse("a column is missing");
    const Statement statement(made, sqlite3_finalize);
    int status = SQLITE_OK;
    while ((status = sqlite3_step(made)) == SQLITE_ROW) take(made);
    if (status != SQLITE_DONE) stats_.add("truncated", cat(path_, ": ", sqlite3_errmsg(database_.get())));
  }

  NameId name(int64_t id) const {
    const auto found = strings_.find(id);
    return found == strings_.end() ? NameId{0} : found->second;
  }

  uint16_t lane(const char* process, const std::string& thread, int64_t process_id, int64_t id) {
    const auto [entry, added] = lanes_.try_emplace({process_id, id}, static_cast<uint16_t>(trace_.lanes.size()));
    if (added) {
      if (trace_.lanes.size() >= UINT16_MAX) {
        entry->second = UINT16_MAX - 1;
      } else {
        trace_.lanes.push_back({false, process_id, id, trace_.names.intern(thread), trace_.names.intern(process)});
      }
    }
    return entry->second;
  }

  void add(int64_t start, int64_t end, NameId what, uint8_t category, uint16_t where, int64_t connection) {
    constexpr int64_t kLimit = int64_t{1} << 62;
    if (start <= -kLimit || start >= kLimit || end < start || end >= kLimit) {
      return stats_.add("bad_number", cat(path_, ": ", trace_.names[what], " from ", start, " to ", end));
    }
    Events& events = trace_.events;
    events.ts.push_back(start);
    events.dur.push_back(end - start);
    events.name.push_back(what);
    events.category.push_back(category);
    events.lane.push_back(where);
    events.correlation.push_back(connection > 0 && connection < UINT32_MAX ? static_cast<uint32_t>(connection) : 0);
    for (Column<uint32_t>* column : {&events.external, &events.comm, &events.details}) column->push_back(0);
  }

  void read_tasks() {
    const bool named = has("COMPUTE_TASK_INFO");
    const std::string sql = cat("SELECT t.startNs, t.endNs, t.connectionId, t.streamId, t.taskType",
                                named ? ", c.name, c.taskType FROM TASK t LEFT JOIN COMPUTE_TASK_INFO c ON "
                                        "c.globalTaskId = t.globalTaskId"
                                      : ", NULL, NULL FROM TASK t",
                                " ORDER BY t.startNs");
    each(sql, [&](sqlite3_stmt* row) {
      const int64_t stream = sqlite3_column_int64(row, 3);
      NameId type = name(sqlite3_column_int64(row, 4));
      const bool has_name = sqlite3_column_type(row, 5) != SQLITE_NULL;
      if (has_name) {
        const NameId core = name(sqlite3_column_int64(row, 6));
        // level0 does not record the core type of computing tasks.
        const bool unknown = trace_.names[core].empty() || trace_.names[core] == "N/A";
        type = unknown ? trace_.names.intern(cat(trace_.names[type], kListedComputation)) : core;
      } else if (named) {  // a task that is not listed as computation belongs to a collective
        type = trace_.names.intern(cat(trace_.names[type], " (no computation)"));
      }
      add(sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1),
          has_name ? name(sqlite3_column_int64(row, 5)) : type, trace_.category(trace_.names[type], Side::kHost),
          lane("Ascend Hardware", cat("Stream ", stream), 1, stream), sqlite3_column_int64(row, 2));
    });
  }

  void read_collectives() {
    if (!has("COMMUNICATION_OP")) return;
    const uint8_t category = trace_.category("collective", Side::kHost);
    each("SELECT opName, startNs, endNs, connectionId, groupName FROM COMMUNICATION_OP ORDER BY startNs",
         [&](sqlite3_stmt* row) {
           const int64_t group = sqlite3_column_int64(row, 4);
           add(sqlite3_column_int64(row, 1), sqlite3_column_int64(row, 2), name(sqlite3_column_int64(row, 0)), category,
               lane("Communication", cat("Group ", group, " Communication"), 2, group), sqlite3_column_int64(row, 3));
         });
  }

  void read_host() {
    const uint8_t operators = trace_.category("cpu_op", Side::kOperator);
    const uint8_t annotations = trace_.category("user_annotation", Side::kAnnotation);
    if (has("PYTORCH_API")) {
      each("SELECT startNs, endNs, globalTid, name FROM PYTORCH_API ORDER BY startNs", [&](sqlite3_stmt* row) {
        const NameId what = name(sqlite3_column_int64(row, 3));
        const int64_t thread = sqlite3_column_int64(row, 2);
        const bool step = trace_.names[what].starts_with("ProfilerStep#");
        steps_seen_ = steps_seen_ || step;
        add(sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1), what, step ? annotations : operators,
            lane("Python", cat("Thread ", thread & 0xffffffff), 3, thread), 0);
      });
    }
    if (has("CANN_API")) {
      const uint8_t category = trace_.category("cann", Side::kHost);
      each("SELECT startNs, endNs, globalTid, name, connectionId FROM CANN_API ORDER BY startNs",
           [&](sqlite3_stmt* row) {
             const int64_t thread = sqlite3_column_int64(row, 2);
             add(sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1), name(sqlite3_column_int64(row, 3)),
                 category, lane("CANN", cat("Thread ", thread & 0xffffffff), 4, thread), sqlite3_column_int64(row, 4));
           });
    }
    if (has("STEP_TIME") && !steps_seen_) {
      each("SELECT id, startNs, endNs FROM STEP_TIME ORDER BY startNs", [&](sqlite3_stmt* row) {
        add(sqlite3_column_int64(row, 1), sqlite3_column_int64(row, 2),
            trace_.names.intern(cat("ProfilerStep#", sqlite3_column_int64(row, 0))), annotations,
            lane("Steps", "Steps", 5, 0), 0);
      });
    }
  }

  const std::string& path_;
  RankTrace& trace_;
  FileInfo& file_;
  ImportStats& stats_;
  std::string bytes_;
  bool steps_seen_ = false;
  Connection database_{nullptr, sqlite3_close};
  std::map<int64_t, NameId> strings_;
  std::map<std::pair<int64_t, int64_t>, uint16_t> lanes_;
};

}  // namespace

void read_ascend_database(std::string bytes, const std::string& path, RankTrace& trace, FileInfo& file,
                          ImportStats& stats) {
  Reader(std::move(bytes), path, trace, file, stats).read();
}

}  // namespace ms::profile
