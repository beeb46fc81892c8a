#include "profile/analysis/comm_detail.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "core/error.h"

namespace ms::profile {
namespace {

struct Calls {
  int64_t ns = 0, count = 0, bytes = 0;
  double best = 0;  // bytes per ns
};

std::string two_decimals(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

}  // namespace

std::string largest_communication(const std::vector<RankDevices>& ranks, const CrossRank& cross) {
  std::map<std::pair<int, uint32_t>, int64_t> waits;  // by rank and event
  for (const WaitRow& row : cross.rows) {
    for (const WaitRow::Member& member : row.members) waits[{member.rank, member.event}] = member.wait;
  }
  using Key = std::tuple<std::string, std::string, int64_t>;  // type, group, bytes per call
  std::map<Key, Calls> calls;
  for (const RankDevices& rank : ranks) {
    for (const CommCall& call : communication_calls(*rank.trace, *rank.view)) {
      if (call.type.empty()) continue;
      Calls& sum = calls[{call.type, call.group, call.bytes}];
      const auto wait = waits.find({rank.trace->rank, call.event});
      const int64_t ns = rank.trace->events.dur[call.event] - (wait == waits.end() ? 0 : wait->second);
      sum.ns += ns;
      ++sum.count;
      sum.bytes += std::max<int64_t>(call.bytes, 0);
      if (ns > 0 && call.bytes > 0) {
        sum.best = std::max(sum.best, static_cast<double>(call.bytes) / static_cast<double>(ns));
      }
    }
  }
  if (calls.empty()) return {};
  const auto most = std::max_element(calls.begin(), calls.end(),
                                     [](const auto& a, const auto& b) { return a.second.ns < b.second.ns; });
  const auto& [type, group, bytes] = most->first;
  const Calls& largest = most->second;
  std::string out = type;
  if (bytes >= 0) out += core::cat(" of ", two_decimals(static_cast<double>(bytes) * 1e-6), " MB");
  if (!group.empty()) out += core::cat(" in group ", group.substr(0, 40));
  out += core::cat(": ", two_decimals(static_cast<double>(largest.ns) * 1e-6), " ms in ", largest.count,
                   " calls, hidden or not");
  if (largest.bytes > 0 && largest.ns > 0) {
    double best = largest.best;
    for (const auto& [key, other] : calls) {
      if (std::get<0>(key) == type && 2 * std::get<2>(key) >= bytes) best = std::max(best, other.best);
    }
    out += core::cat(", ", two_decimals(static_cast<double>(largest.bytes) / static_cast<double>(largest.ns)),
                     " GB/s, best ", two_decimals(best), " GB/s seen");
  }
  return out;
}

}  // namespace ms::profile
