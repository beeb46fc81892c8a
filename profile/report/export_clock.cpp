#include "profile/report/export_clock.h"

#include <algorithm>

namespace ms::profile {

int64_t CommonClock::operator()(int64_t ts) const {
  if (trace_ == nullptr) return ts;
  return tables_ ? line_.to_reference(ts) : clock_.to_reference(unix_time(*trace_, ts));
}

ExportClock export_clock(const std::vector<const RankTrace*>& ranks) {
  const bool merged = ranks.size() > 1;
  const bool tables = std::all_of(ranks.begin(), ranks.end(), [](const RankTrace* t) { return !t->clocks.empty(); });
  ExportClock clock;
  clock.ranks.resize(ranks.size());
  if (merged) {
    std::vector<DeviceView> views;
    std::vector<RankDevices> devices;
    for (const RankTrace* trace : ranks) views.push_back(view_devices(*trace));
    for (size_t r = 0; r < ranks.size(); ++r) devices.push_back({ranks[r], &views[r]});
    ClockAlignment alignment;
    alignment.ranks.resize(ranks.size());
    if (!tables) alignment = align_clocks(devices, match_comms(devices), AlignMode::kAuto);
    for (size_t r = 0; r < ranks.size(); ++r) {
      clock.ranks[r] = CommonClock(*ranks[r], tables, alignment.reliable ? alignment.ranks[r] : RankClock{});
    }
  }
  int64_t origin = INT64_MAX;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (const auto first = first_time(*ranks[r])) origin = std::min(origin, clock.ranks[r](*first));
  }
  clock.origin = origin == INT64_MAX ? 0 : origin;
  const RankTrace& reference = *ranks.front();
  // unix = base + ts of the reference; aligned ranks already use unix time.
  const int64_t unix_base =
      merged && !tables ? 0 : reference.base_unix_ns + (reference.first_ts - clock.ranks[0](reference.first_ts));
  clock.unix_origin = unix_base + clock.origin;
  return clock;
}

}  // namespace ms::profile
