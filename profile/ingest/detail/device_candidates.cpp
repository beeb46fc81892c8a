#include "profile/ingest/detail/device_candidates.h"

#include <algorithm>
#include <string>

namespace ms::profile::detail {

void resolve_candidates(const std::vector<uint32_t>& candidates, RankTrace& trace, ImportStats& stats) {
  if (candidates.empty()) return;
  std::vector<uint32_t> launched;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    if (trace.side(i) == Side::kLaunch && trace.events.correlation[i] != 0) {
      launched.push_back(trace.events.correlation[i]);
    }
  }
  std::sort(launched.begin(), launched.end());
  for (const uint32_t i : candidates) {
    const std::string& name = trace.names[trace.categories[trace.events.category[i]].name];
    stats.add("unknown_category", name);
    const uint32_t id = trace.events.correlation[i];
    if (id != 0 && std::binary_search(launched.begin(), launched.end(), id)) continue;
    trace.events.category[i] = trace.category(name, Side::kHost);
  }
}

}  // namespace ms::profile::detail
