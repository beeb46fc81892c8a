#include "profile/report/json_report.h"

#include <algorithm>

#include "profile/report/json_hta.h"
#include "profile/report/json_job.h"
#include "profile/report/json_writer.h"
#include "profile/report/path_tables.h"

namespace ms::profile {
namespace {

// The rows of each table under its name.
void write_tables(JsonWriter& json, const std::vector<DataTable>& tables) {
  for (const DataTable& table : tables) {
    json.key(table.name()).begin_array();
    table.write_rows(json);
    json.end_array();
  }
}

void write_import(JsonWriter& json, const Store& store) {
  json.key("import").begin_object();
  json.key("files").begin_array();
  for (const FileInfo& file : store.files) {
    json.begin_object();
    json.key("path").value(file.path);
    json.key("format").value(file.format);
    json.key("rank").value(file.rank);
    json.key("bytes").value(file.bytes);
    json.key("json_bytes");
    file.json_bytes < 0 ? json.null() : json.value(file.json_bytes);
    json.key("events").value(file.events);
    json.key("truncated").value(file.truncated);
    json.end_object();
  }
  json.end_array();
  json.key("data_loss").value(store.stats.data_loss());
  json.key("counts").begin_object();
  for (const auto& [kind, issue] : store.stats.issues()) json.key(kind).value(issue.count);
  json.end_object();
  json.key("seconds").decimal(store.seconds, 6);
  json.end_object();
}

}  // namespace

namespace {

// Writes everything before the fields of the result.
void open_report(JsonWriter& json, const Store& store, const std::vector<std::string>& warnings,
                 const ReportOptions& options) {
  json.begin_object();
  json.key("schema").value("msprof/1");
  json.key("command").value(options.command);
  json.key("arguments").begin_array();
  for (const std::string& argument : options.arguments) json.value(argument);
  json.end_array();
  write_import(json, store);
  json.key("warnings").begin_array();
  for (const std::string& line : store.stats.lines()) json.value(line);
  for (const std::string& line : warnings) json.value(line);
  json.end_array();
  json.key("result").begin_object();
}

std::string close_report(JsonWriter& json) {
  json.end_object();
  json.end_object();
  return json.take();
}

}  // namespace

std::string json_report(const Store& store, const Results& results, const ReportOptions& options) {
  JsonWriter json(options.pretty);
  open_report(json, store, results.warnings, options);
  json.key("ranks").begin_array();
  for (size_t r = 0; r < results.ranks.size(); ++r) {
    const RankResults& rank = results.ranks[r];
    json.begin_object();
    json.key("rank").value(rank.rank);
    for (const Section* section : results.sections) {
      if (section->write_rank != nullptr) section->write_rank(json, *store.ranks[r], rank, options.top);
    }
    json.end_object();
  }
  json.end_array();
  for (const Section* section : results.sections) {
    if (section->write_job != nullptr) section->write_job(json, results);
  }
  return close_report(json);
}

std::string json_report(const Store& store, const Diff& diff, const ReportOptions& options) {
  JsonWriter json(options.pretty);
  open_report(json, store, {}, options);
  write_diff(json, diff, options.top);
  return close_report(json);
}

std::string json_report(const Store& store, const CriticalPath& path, const ReportOptions& options) {
  JsonWriter json(options.pretty);
  open_report(json, store, {}, options);
  json.key("rank").value(store.ranks[0]->rank);
  write_critical_path(json, *store.ranks[0], path);
  return close_report(json);
}

std::string json_report(const Store& store, const JobPath& path, const ReportOptions& options) {
  JsonWriter json(options.pretty);
  open_report(json, store, {}, options);
  json.key("success").value(path.problem.empty());
  json.key("problem");
  path.problem.empty() ? json.null() : json.value(path.problem);
  json.key("runtime_us").us(path.runtime_ns);
  json.key("pieces").value(static_cast<int64_t>(path.pieces.size()));
  write_tables(json, path_tables(path, options.top));
  return close_report(json);
}

std::string json_report(const Store& store, const HtaResults& hta, const ReportOptions& options) {
  JsonWriter json(options.pretty);
  open_report(json, store, {}, options);
  json.key("hta");
  write_hta(json, hta);
  return close_report(json);
}

std::string json_report(const Store& store, const std::vector<DataTable>& tables, const ReportOptions& options) {
  JsonWriter json(options.pretty);
  open_report(json, store, {}, options);
  write_tables(json, tables);
  return close_report(json);
}

std::string json_report(const Store& store, const DataTable& table, const ReportOptions& options) {
  JsonWriter json(options.pretty);
  open_report(json, store, {}, options);
  json.key("rows").begin_array();
  table.write_rows(json);
  json.end_array();
  return close_report(json);
}

std::string json_report(const Store& store, const std::vector<Check>& checks, const ReportOptions& options) {
  JsonWriter json(options.pretty);
  open_report(json, store, {}, options);
  json.key("holds").value(std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.holds; }));
  json.key("checks").begin_array();
  for (const Check& check : checks) {
    json.begin_object();
    json.key("what").value(check.what);
    json.key("seen").decimal(check.seen, 6);
    json.key("limit").decimal(check.limit, 6);
    json.key("holds").value(check.holds);
    json.key("where").value(check.where);
    json.end_object();
  }
  json.end_array();
  return close_report(json);
}

}  // namespace ms::profile
