#include "profile/report/path_tables.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace ms::profile {
namespace {
using core::cat;
using Unit = DataTable::Unit;
}  // namespace

std::vector<DataTable> path_tables(const RankTrace& trace, const CriticalPath& path, int64_t top) {
  const int64_t wall = path.window_end - path.window_start;
  DataTable bounds("critical_path_bounds",
                   cat("Critical path of rank ", trace.rank, ": ", static_cast<double>(path.length / 1000) * 1e-3,
                       " ms of work; the window takes ", static_cast<double>(wall / 1000) * 1e-3,
                       " ms of wall time (gaps of the host between operators are free)"),
                   {{"bound_by", Unit::kText}, {"on_path", Unit::kTime}, {"of_path", Unit::kShare}});
  for (size_t b = 1; b < kNumPathBounds; ++b) {
    if (path.bound_ns[b] == 0) continue;
    bounds.add({std::string(path_bound_name(static_cast<PathBound>(b))), Ns{path.bound_ns[b]},
                Share{path.bound_ns[b], path.length}});
  }
  struct Sum {
    int64_t count = 0, ns = 0, dur = 0;
  };
  std::map<std::string, Sum> by_name;
  for (const PathEvent& event : path.events) {
    Sum& sum = by_name[trace.names[trace.events.name[event.event]]];
    ++sum.count;
    sum.ns += event.on_path;
    sum.dur += trace.events.dur[event.event];
  }
  std::vector<std::pair<std::string, Sum>> rows(by_name.begin(), by_name.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  if (top > 0 && rows.size() > static_cast<size_t>(top)) rows.resize(static_cast<size_t>(top));
  DataTable events("critical_path_events", "What carries it",
                   {{"name", Unit::kText},
                    {"events"},
                    {"duration", Unit::kTime},
                    {"on_path", Unit::kTime},
                    {"of_path", Unit::kShare}});
  for (const auto& [name, sum] : rows)
    events.add({name, sum.count, Ns{sum.dur}, Ns{sum.ns}, Share{sum.ns, path.length}});
  std::vector<DataTable> out;
  out.push_back(std::move(bounds));
  out.push_back(std::move(events));
  return out;
}

std::vector<DataTable> path_tables(const JobPath& path, int64_t top) {
  const auto cut = [top](size_t rows) { return top > 0 ? std::min(rows, static_cast<size_t>(top)) : rows; };
  DataTable shares(
      "job_path_shares",
      cat("Critical path across ranks: ", static_cast<double>(path.runtime_ns / 1000) * 1e-3, " ms of"),
      {{"name", Unit::kText}, {"doing", Unit::kText}, {"on_path", Unit::kTime}, {"of_path", Unit::kShare}});
  for (size_t i = 0; i < cut(path.shares.size()); ++i) {
    const PathShare& share = path.shares[i];
    shares.add({share.name, std::string(doing_name(share.doing)), Ns{share.ns}, Share{share.ns, path.runtime_ns}});
  }
  DataTable ranks("job_path_ranks", "How long each rank is on it",
                  {{"rank"}, {"on_path", Unit::kTime}, {"of_path", Unit::kShare}});
  for (const auto& [rank, ns] : path.by_rank) ranks.add({int64_t{rank}, Ns{ns}, Share{ns, path.runtime_ns}});
  DataTable changes("job_path_what_if", "What if (a replay: others may become the last)",
                    {{"change", Unit::kText}, {"runtime", Unit::kTime}, {"faster", Unit::kShare}});
  for (size_t i = 0; i < cut(path.what_if.size()); ++i) {
    const WhatIf& change = path.what_if[i];
    changes.add({change.change, Ns{change.runtime_ns}, Share{path.runtime_ns - change.runtime_ns, path.runtime_ns}});
  }
  std::vector<DataTable> out;
  for (DataTable* table : {&shares, &ranks, &changes}) {
    if (!table->empty()) out.push_back(std::move(*table));
  }
  return out;
}

}  // namespace ms::profile
