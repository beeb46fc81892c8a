#include "profile/analysis/hta_rounding.h"

#include <algorithm>
#include <cmath>

namespace ms::profile {
namespace {

constexpr int64_t kMicrosecond = 1000;

// The double that a JSON parser returns for the microseconds; for times since the epoch its resolution is a quarter.
double as_double(int64_t ns) { return static_cast<double>(static_cast<long double>(ns) / kMicrosecond); }

}  // namespace

void round_as_hta(RankTrace& trace) {
  Events& events = trace.events;
  const bool own = !trace.meta.empty();
  const bool whole = std::all_of(events.ts.begin(), events.ts.end(), [](int64_t ts) { return ts % kMicrosecond == 0; });
  if (whole && !own) return;
  const int64_t zero = own ? first_time(trace).value_or(0) : 0;
  for (size_t i = 0; i < events.size(); ++i) {
    const double ts = as_double(events.ts[i] - zero), end = ts + as_double(events.dur[i]);
    events.ts[i] = static_cast<int64_t>(std::ceil(ts)) * kMicrosecond;
    events.dur[i] = static_cast<int64_t>(std::floor(end)) * kMicrosecond - events.ts[i];
  }
  find_bounds(trace);  // without sorting again: events that now start together keep the order of the file
}

}  // namespace ms::profile
