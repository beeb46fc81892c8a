#include "profile/report/mfu_tables.h"

#include <algorithm>
#include <string>

namespace ms::profile {
namespace {

using Unit = DataTable::Unit;

Cell real(double value, int decimals, bool known = true) {
  if (!known) return {};
  return Real{value, decimals};
}

}  // namespace

std::vector<DataTable> mfu_tables(const std::vector<Mfu>& ranks, const Peak& peak, int64_t top) {
  DataTable job("mfu", "FLOPs by rank; hfu_pct: of what was executed, mfu_pct: of what the model needs",
                {{"rank"},
                 {"flops_from", Unit::kText},
                 {"steps"},
                 {"step", Unit::kTime},
                 {"gflop_per_step", Unit::kReal},
                 {"tflop_per_s", Unit::kReal},
                 {"covered", Unit::kShare},
                 {"hfu_pct", Unit::kReal},
                 {"mfu_pct", Unit::kReal}});
  DataTable rows("roofline", "By kernel or operator: rates while it runs, and FLOPs per byte moved",
                 {{"rank"},
                  {"name", Unit::kText},
                  {"calls"},
                  {"device", Unit::kTime},
                  {"gflop", Unit::kReal},
                  {"gflop_per_s", Unit::kReal},
                  {"gb_per_s", Unit::kReal},
                  {"flop_per_byte", Unit::kReal},
                  {"of_peak_pct", Unit::kReal}});
  const double peak_flops = peak.tflops * 1e12;
  for (const Mfu& rank : ranks) {
    const auto steps = static_cast<double>(std::max<int64_t>(rank.steps, 1));
    const double step_s = static_cast<double>(rank.step_ns) * 1e-9;
    const bool known = !rank.rows.empty(), rate = peak_flops > 0 && step_s > 0;
    const double needed = peak.model_flops / static_cast<double>(ranks.size());
    job.add({int64_t{rank.rank}, std::string(rank.recorded ? "trace" : "shapes"), rank.steps, Ns{rank.step_ns},
             real(static_cast<double>(rank.flops) / steps * 1e-9, 3, known),
             real(rank.flops_per_second() * 1e-12, 4, known), Share{rank.covered_ns, rank.computing_ns},
             real(100 * rank.flops_per_second() / peak_flops, 2, rate && known),
             real(100 * needed / step_s / peak_flops, 2, rate && peak.model_flops > 0)});
    const size_t shown = top > 0 ? std::min(rank.rows.size(), static_cast<size_t>(top)) : rank.rows.size();
    for (size_t i = 0; i < shown; ++i) {
      const FlopsRow& row = rank.rows[i];
      const auto ns = static_cast<double>(row.device_ns), flops = static_cast<double>(row.flops);
      const bool bytes = row.bytes > 0, timed = row.device_ns > 0;
      rows.add({int64_t{rank.rank}, row.name, row.count, Ns{row.device_ns}, real(flops * 1e-9, 3),
                real(flops / ns, 2, timed), real(static_cast<double>(row.bytes) / ns, 2, timed && bytes),
                real(flops / static_cast<double>(row.bytes), 2, bytes),
                real(100 * flops / ns * 1e9 / peak_flops, 2, timed && peak_flops > 0)});
    }
  }
  std::vector<DataTable> out;
  for (DataTable* table : {&job, &rows}) {
    if (!table->empty()) out.push_back(std::move(*table));
  }
  return out;
}

}  // namespace ms::profile
