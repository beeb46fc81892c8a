#include "profile/query/sql.h"

#include <sqlite3.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "core/error.h"
#include "profile/analysis/device.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

// Sets the result of a virtual table's cell.
void put(sqlite3_context* out, int64_t value) { sqlite3_result_int64(out, value); }
void put(sqlite3_context* out, double value) { sqlite3_result_double(out, value); }
void put(sqlite3_context* out, const std::string& text) {
  sqlite3_result_text(out, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);  // owned by the store
}
void put_known(sqlite3_context* out, int64_t value) {
  if (value >= 0) put(out, value);  // else NULL
}

struct Rank {
  const RankTrace* trace = nullptr;
  DeviceView view;
  std::vector<uint32_t> device;  // by event: index of view.devices + 1, 0 for events that are not device work
  int32_t step(size_t event) const {
    if (const uint32_t d = device[event]; d != 0) return view.devices[d - 1].step;
    const int64_t ts = trace->events.ts[event];
    for (size_t s = view.steps.size(); s-- > 0;) {
      if (ts >= view.steps[s].start && ts < view.steps[s].end) return static_cast<int32_t>(s);
    }
    return kNoStep;
  }
};

// The tables' columns, for their declaration and for query_tables().
constexpr const char* kEventColumns =
    "rank, step, ts, dur, name, cat, class, device, stream, pid, tid, correlation, external_id, bytes, flops, "
    "collective, process_group, dtype, in_elements, seq, source, destination";
constexpr const char* kCounterColumns = "rank, ts, name, value";
constexpr const char* kMemoryColumns = "rank, ts, address, bytes, allocated, reserved, device_type, device";
constexpr const char* kStepColumns = "rank, step, start, end";
constexpr const char* kRankColumns = "rank, world_size, events, first_ts, last_end";

// A table: a number of rows for each rank, and a function that returns a cell.
struct Source {
  const char* columns;
  std::function<size_t(const Rank&)> rows;
  std::function<void(const Rank&, size_t row, int column, sqlite3_context*)> cell;
  const std::vector<Rank>* ranks = nullptr;
};

void event_cell(const Rank& rank, size_t i, int column, sqlite3_context* out) {
  static const std::string kClasses[] = {"COMPUTATION", "COMMUNICATION", "MEMORY"};
  const RankTrace& trace = *rank.trace;
  const Events& events = trace.events;
  const Lane& lane = trace.lanes[events.lane[i]];
  const CommArgs& comm = trace.comms[events.comm[i]];
  const Details& details = trace.details[events.details[i]];
  const bool communicates = events.comm[i] != 0;
  switch (column) {
    case 0:
      return put(out, int64_t{trace.rank});
    case 1:
      if (const int32_t step = rank.step(i); step != kNoStep)
        put(out, rank.view.steps[static_cast<size_t>(step)].number);
      return;
    case 2:
      return put(out, events.ts[i]);
    case 3:
      return put(out, events.dur[i]);
    case 4:
      return put(out, trace.names[events.name[i]]);
    case 5:
      return put(out, trace.names[trace.categories[events.category[i]].name]);
    case 6:
      if (rank.device[i] != 0)
        put(out, kClasses[static_cast<size_t>(rank.view.devices[rank.device[i] - 1].device_class)]);
      return;
    case 7:
    case 8:
      if (lane.device) put(out, column == 7 ? lane.process : lane.id);
      return;
    case 9:
    case 10:
      if (!lane.device) put(out, column == 9 ? lane.process : lane.id);
      return;
    case 11:
      if (events.correlation[i] != 0) put(out, int64_t{events.correlation[i]});
      return;
    case 12:
      if (events.external[i] != 0) put(out, int64_t{events.external[i]});
      return;
    case 13:
      return put_known(out, details.bytes);
    case 14:
      return put_known(out, details.flops);
    case 15:
      if (communicates) put(out, trace.names[comm.op]);
      return;
    case 16:
      if (communicates) put(out, trace.names[comm.group]);
      return;
    case 17:
      if (communicates) put(out, trace.names[comm.dtype]);
      return;
    case 18:
      if (communicates) put(out, comm.in_elements);
      return;
    case 19:
      if (communicates) put_known(out, comm.sequence);
      return;
    case 20:
      return put_known(out, comm.source);
    default:
      return put_known(out, comm.destination);
  }
}

void counter_cell(const Rank& rank, size_t i, int column, sqlite3_context* out) {
  const CounterSample& sample = rank.trace->counters[i];
  if (column == 0) return put(out, int64_t{rank.trace->rank});
  if (column == 1) return put(out, sample.ts);
  if (column == 2) return put(out, rank.trace->names[sample.name]);
  put(out, sample.value);
}

void memory_cell(const Rank& rank, size_t i, int column, sqlite3_context* out) {
  const MemoryChange& m = rank.trace->memory[i];
  const int64_t cells[] = {rank.trace->rank, m.ts, m.address, m.bytes, m.total, m.reserved, m.device_type, m.device};
  put(out, cells[column]);
}

void step_cell(const Rank& rank, size_t i, int column, sqlite3_context* out) {
  const Step& step = rank.view.steps[i];
  const int64_t cells[] = {rank.trace->rank, step.number, step.start, step.end};
  put(out, cells[column]);
}

void rank_cell(const Rank& rank, size_t, int column, sqlite3_context* out) {
  const RankTrace& t = *rank.trace;
  const int64_t cells[] = {t.rank, t.world_size, static_cast<int64_t>(t.events.size()), t.first_ts, t.last_end};
  put(out, cells[column]);
}

// SQLite's virtual tables, read-only and without an index: a scan of the columns is fast enough.
struct Table {
  sqlite3_vtab base{};
  const Source* source = nullptr;
};
struct Cursor {
  sqlite3_vtab_cursor base{};
  const Source* source = nullptr;
  size_t rank = 0, row = 0;
  sqlite3_int64 number = 0;
  void settle() {
    while (rank < source->ranks->size() && row >= source->rows((*source->ranks)[rank])) {
      ++rank;
      row = 0;
    }
  }
};

int connect(sqlite3* database, void* source, int, const char* const*, sqlite3_vtab** out, char**) {
  const int status =
      sqlite3_declare_vtab(database, cat("CREATE TABLE x(", static_cast<const Source*>(source)->columns, ")").c_str());
  if (status != SQLITE_OK) return status;
  auto table = std::make_unique<Table>();
  table->source = static_cast<const Source*>(source);
  *out = &table.release()->base;
  return SQLITE_OK;
}
int disconnect(sqlite3_vtab* table) {
  delete reinterpret_cast<Table*>(table);
  return SQLITE_OK;
}
int best_index(sqlite3_vtab*, sqlite3_index_info* info) {
  info->estimatedCost = 1e6;
  return SQLITE_OK;
}
int open(sqlite3_vtab* table, sqlite3_vtab_cursor** out) {
  auto cursor = std::make_unique<Cursor>();
  cursor->source = reinterpret_cast<Table*>(table)->source;
  *out = &cursor.release()->base;
  return SQLITE_OK;
}
int close(sqlite3_vtab_cursor* cursor) {
  delete reinterpret_cast<Cursor*>(cursor);
  return SQLITE_OK;
}
int filter(sqlite3_vtab_cursor* base, int, const char*, int, sqlite3_value**) {
  auto* cursor = reinterpret_cast<Cursor*>(base);
  cursor->rank = cursor->row = 0;
  cursor->number = 0;
  cursor->settle();
  return SQLITE_OK;
}
int next(sqlite3_vtab_cursor* base) {
  auto* cursor = reinterpret_cast<Cursor*>(base);
  ++cursor->row;
  ++cursor->number;
  cursor->settle();
  return SQLITE_OK;
}
int at_end(sqlite3_vtab_cursor* base) {
  const auto* cursor = reinterpret_cast<Cursor*>(base);
  return cursor->rank >= cursor->source->ranks->size() ? 1 : 0;
}
int column(sqlite3_vtab_cursor* base, sqlite3_context* out, int n) {
  const auto* cursor = reinterpret_cast<Cursor*>(base);
  cursor->source->cell((*cursor->source->ranks)[cursor->rank], cursor->row, n, out);
  return SQLITE_OK;
}
int row_id(sqlite3_vtab_cursor* base, sqlite3_int64* out) {
  *out = reinterpret_cast<Cursor*>(base)->number;
  return SQLITE_OK;
}

const sqlite3_module& module() {
  static const sqlite3_module made = [] {
    sqlite3_module m{};
    m.iVersion = 1;
    m.xCreate = m.xConnect = connect;
    m.xBestIndex = best_index;
    m.xDisconnect = m.xDestroy = disconnect;
    m.xOpen = open;
    m.xClose = close;
    m.xFilter = filter;
    m.xNext = next;
    m.xEof = at_end;
    m.xColumn = column;
    m.xRowid = row_id;
    return m;
  }();
  return made;
}

}  // namespace

std::string query_tables() {
  return cat("Tables and their columns (times in ns; class: COMPUTATION, COMMUNICATION or MEMORY, of device work):\n",
             "  events: ", kEventColumns, "\n  counters: ", kCounterColumns, "\n  memory: ", kMemoryColumns,
             "\n  steps: ", kStepColumns, "\n  ranks: ", kRankColumns);
}

DataTable query(const Store& store, const std::string& sql) {
  std::vector<Rank> ranks;
  for (const auto& trace : store.ranks) {
    Rank rank{trace.get(), view_devices(*trace), std::vector<uint32_t>(trace->events.size())};
    for (uint32_t d = 0; d < rank.view.devices.size(); ++d) rank.device[rank.view.devices[d].event] = d + 1;
    ranks.push_back(std::move(rank));
  }
  const std::pair<const char*, Source> sources[] = {
      {"events", {kEventColumns, [](const Rank& r) { return r.trace->events.size(); }, event_cell, &ranks}},
      {"counters", {kCounterColumns, [](const Rank& r) { return r.trace->counters.size(); }, counter_cell, &ranks}},
      {"memory", {kMemoryColumns, [](const Rank& r) { return r.trace->memory.size(); }, memory_cell, &ranks}},
      {"steps", {kStepColumns, [](const Rank& r) { return r.view.steps.size(); }, step_cell, &ranks}},
      {"ranks", {kRankColumns, [](const Rank&) { return size_t{1}; }, rank_cell, &ranks}}};
  sqlite3* opened = nullptr;
  if (sqlite3_open(":memory:", &opened) != SQLITE_OK) throw std::bad_alloc();
  const std::unique_ptr<sqlite3, int (*)(sqlite3*)> database(opened, sqlite3_close);
  for (const auto& [name, source] : sources) {
    // A module whose xCreate equals its xConnect is eponymous: its own name would be a table, too.
    sqlite3_create_module(opened, cat("msprof_", name).c_str(), &module(), const_cast<Source*>(&source));
    sqlite3_exec(opened, cat("CREATE VIRTUAL TABLE ", name, " USING msprof_", name).c_str(), nullptr, nullptr, nullptr);
  }
  sqlite3_stmt* made = nullptr;
  const char* rest = nullptr;
  if (sqlite3_prepare_v2(opened, sql.c_str(), -1, &made, &rest) != SQLITE_OK) {
    throw Error(ErrorCode::kInvalidArgument, cat("query: ", sqlite3_errmsg(opened)));
  }
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(made, sqlite3_finalize);
  if (made == nullptr || sqlite3_stmt_readonly(made) == 0 || sqlite3_column_count(made) == 0) {
    throw Error(ErrorCode::kInvalidArgument, cat("query: \"", sql, "\" returns no rows: write one SELECT"));
  }
  if (std::string_view(rest).find_first_not_of(" ;\t\r\n") != std::string_view::npos) {
    throw Error(ErrorCode::kInvalidArgument, cat("query: one statement at a time, but \"", rest, "\" follows"));
  }
  std::vector<DataTable::Column> columns;
  for (int c = 0; c < sqlite3_column_count(made); ++c) columns.push_back({sqlite3_column_name(made, c)});
  DataTable table("query", "query", columns);
  int status = SQLITE_OK;
  while ((status = sqlite3_step(made)) == SQLITE_ROW) {
    std::vector<Cell> row;
    for (int c = 0; c < sqlite3_column_count(made); ++c) {
      switch (sqlite3_column_type(made, c)) {
        case SQLITE_INTEGER:
          row.emplace_back(int64_t{sqlite3_column_int64(made, c)});
          break;
        case SQLITE_FLOAT:
          row.emplace_back(Real{sqlite3_column_double(made, c), 6});
          break;
        case SQLITE_NULL:
          row.emplace_back();
          break;
        default:
          row.emplace_back(std::string(reinterpret_cast<const char*>(sqlite3_column_text(made, c)),
                                       static_cast<size_t>(sqlite3_column_bytes(made, c))));
      }
    }
    table.add(std::move(row));
  }
  if (status != SQLITE_DONE) throw Error(ErrorCode::kInvalidArgument, cat("query: ", sqlite3_errmsg(opened)));
  return table;
}

std::string events_query(const std::string& where, const std::string& columns) {
  const auto is_column = [](std::string_view name) {
    return !name.empty() &&
           std::all_of(name.begin(), name.end(), [](char c) { return c == '_' || (c >= 'a' && c <= 'z'); });
  };
  std::string sql = "SELECT ";
  for (size_t at = 0; at < columns.size();) {
    const size_t end = std::min(columns.find(',', at), columns.size());
    const std::string name = columns.substr(at, end - at);
    if (!is_column(name))
      throw Error(ErrorCode::kInvalidArgument, cat("--columns ", columns, ": \"", name, "\" is not a column"));
    sql += cat(at == 0 ? "" : ", ", name);
    at = end + 1;
  }
  if (columns.empty()) sql += "rank, step, ts, dur, cat, name, device, stream, pid, tid, correlation";
  sql += " FROM events";
  for (size_t at = 0; at < where.size();) {
    const size_t end = std::min(where.find(',', at), where.size());
    const std::string condition = where.substr(at, end - at);
    const size_t sign = condition.find_first_of("=!<>~");
    const bool two = condition.compare(std::min(sign, condition.size()), 2, "!=") == 0;
    if (sign == std::string::npos || !is_column(condition.substr(0, sign)) || (condition[sign] == '!' && !two)) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--where ", where, ": \"", condition, "\": expected a column, one of = != < > ~, and a value"));
    }
    const std::string column = condition.substr(0, sign), value = condition.substr(sign + (two ? 2 : 1));
    std::string quoted = "'";
    for (const char c : value) quoted += c == '\'' ? std::string("''") : std::string(1, c);
    quoted += "'";
    const bool number = !value.empty() && value.find_first_not_of("-0123456789") == std::string::npos;
    sql += at == 0 ? " WHERE " : " AND ";
    sql += condition[sign] == '~'
               ? cat("instr(", column, ", ", quoted, ") > 0")
               : cat(column, " ", two ? "!=" : std::string(1, condition[sign]), " ", number ? value : quoted);
    at = end + 1;
  }
  return sql;
}

}  // namespace ms::profile
