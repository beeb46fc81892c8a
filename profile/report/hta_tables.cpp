#include "profile/report/hta_tables.h"

namespace ms::profile {

std::vector<DataTable> hta_tables(const std::vector<HtaRank>& ranks) {
  using Unit = DataTable::Unit;
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
  for (const auto& [rank, b] : ranks) {
    times.add({int64_t{rank}, Ns{b.idle}, Ns{b.compute}, Ns{b.non_compute}, Ns{b.kernel}, Share{b.idle, b.kernel},
               Share{b.compute, b.kernel}, Share{b.non_compute, b.kernel}});
    overlap.add({int64_t{rank}, Share{b.overlap, b.communication}});
  }
  return {std::move(times), std::move(overlap)};
}

}  // namespace ms::profile
