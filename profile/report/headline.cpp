#include "profile/report/headline.h"

#include <algorithm>

#include "profile/analysis/steps.h"

namespace ms::profile {

Headline headline(const Store& store, const Results& results) {
  Headline out;
  out.ranks = results.ranks.size();
  out.files = store.files.size();
  int64_t sum = 0, steps = 0;
  for (const RankResults& rank : results.ranks) {
    for (const StepRow& row : rank.at<RankSteps>().rows) {
      sum += row.host_ns;
      ++steps;
    }
  }
  if (steps > 0) {
    out.mean_step_ns = sum / steps;
    out.steps_of_first_rank = results.ranks[0].at<RankSteps>().rows.size();
  }
  out.time = results.at<JobTime>();
  out.load_balance = results.at<Imbalance>().load_balance;
  out.on_cpu =
      std::any_of(results.views.begin(), results.views.end(), [](const DeviceView& view) { return view.on_host; });
  return out;
}

}  // namespace ms::profile
