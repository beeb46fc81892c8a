#include "profile/report/hta_tables.h"

#include <string>
#include <utility>

namespace ms::profile {
namespace {

using Unit = DataTable::Unit;

std::vector<DataTable::Column> summary_columns(const DataTable::Column& of) {
  return {{"rank"},
          of,
          {"count"},
          {"mean", Unit::kReal},
          {"std", Unit::kReal},
          {"min", Unit::kReal},
          {"p25", Unit::kReal},
          {"p50", Unit::kReal},
          {"p75", Unit::kReal},
          {"max", Unit::kReal}};
}

std::vector<Cell> summary_row(int rank, Cell of, const HtaSummary& s) {
  Cell std;  // GCC 12 warns of a conditional expression of two cells at -O2
  if (s.std) std = Real{*s.std, 3};
  return {int64_t{rank},  std::move(of),  s.count,        Real{s.mean, 3}, std,
          Real{s.min, 3}, Real{s.p25, 3}, Real{s.p50, 3}, Real{s.p75, 3},  Real{s.max, 3}};
}

DataTable idle_table(const HtaResults& results) {
  DataTable table(
      "idle_time_breakdown", "Why streams wait, as Holistic Trace Analysis counts",
      {{"rank"}, {"stream"}, {"idle_category", Unit::kText}, {"idle_time", Unit::kTime}, {"idle_time", Unit::kShare}});
  for (const HtaRank& rank : results.ranks) {
    for (const HtaStreamIdle& idle : rank.idle) {
      for (size_t kind = 0; kind < idle.ns.size(); ++kind) {
        if (!idle.ns[kind]) continue;
        table.add({int64_t{rank.rank}, idle.stream, hta_idle_name(static_cast<IdleKind>(kind)), Ns{*idle.ns[kind]},
                   Share{*idle.ns[kind], idle.total()}});
      }
    }
  }
  return table;
}

}  // namespace

std::vector<DataTable> hta_breakdown_tables(const HtaResults& results) {
  DataTable times("temporal_breakdown", "As Holistic Trace Analysis counts",
                  {{"rank"},
                   {"idle_time", Unit::kTime},
                   {"compute_time", Unit::kTime},
                   {"non_compute_time", Unit::kTime},
                   {"kernel_time", Unit::kTime},
                   {"idle_time", Unit::kShare},
                   {"compute_time", Unit::kShare},
                   {"non_compute_time", Unit::kShare}});
  DataTable overlap("comm_comp_overlap", "Communication that computing hides, as Holistic Trace Analysis counts",
                    {{"rank"}, {"comp_comm_overlap", Unit::kShare}});
  for (const HtaRank& rank : results.ranks) {
    if (!rank.breakdown) continue;
    const HtaBreakdown& b = *rank.breakdown;
    times.add({int64_t{rank.rank}, Ns{b.idle}, Ns{b.compute}, Ns{b.non_compute}, Ns{b.kernel}, Share{b.idle, b.kernel},
               Share{b.compute, b.kernel}, Share{b.non_compute, b.kernel}});
    overlap.add({int64_t{rank.rank}, Share{b.overlap, b.communication}});
  }
  return {std::move(times), std::move(overlap)};
}

std::vector<DataTable> hta_tables(const HtaResults& results) {
  std::vector<DataTable> out = hta_breakdown_tables(results);
  DataTable queues("queue_length_summary", "How full the queue of each stream was, as Holistic Trace Analysis counts",
                   summary_columns({"stream"}));
  DataTable bandwidths("memory_bw_summary", "GB/s of what copied at once, as Holistic Trace Analysis counts",
                       summary_columns({"name", Unit::kText}));
  for (const HtaRank& rank : results.ranks) {
    for (const auto& [stream, summary] : rank.queues) queues.add(summary_row(rank.rank, stream, summary));
    for (const auto& [name, summary] : rank.bandwidths) bandwidths.add(summary_row(rank.rank, name, summary));
  }
  DataTable steps("profiler_steps", "Steps that Holistic Trace Analysis takes", {{"first"}, {"last"}, {"steps"}});
  if (!results.steps.empty()) {
    steps.add({results.steps.front(), results.steps.back(), static_cast<int64_t>(results.steps.size())});
  }
  DataTable stragglers("potential_stragglers",
                       "Ranks that start communication late, as Holistic Trace Analysis finds them", {{"rank"}});
  for (const int rank : results.stragglers) stragglers.add({int64_t{rank}});
  out.insert(out.begin(), std::move(steps));
  out.push_back(idle_table(results));
  out.push_back(std::move(queues));
  out.push_back(std::move(bandwidths));
  out.push_back(std::move(stragglers));
  std::erase_if(out, [](const DataTable& table) { return table.empty(); });
  return out;
}

}  // namespace ms::profile
