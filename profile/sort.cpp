#include "profile/sort.h"

#include <algorithm>
#include <vector>

namespace ms::profile {
namespace {

// std::merge of two non-empty runs, with plain copies of the parts that do not interleave.
template <class Less>
void merge(const uint32_t* first, const uint32_t* second, const uint32_t* end, uint32_t* out, const Less& less) {
  const uint32_t* begin = std::upper_bound(first, second, *second, less);
  const uint32_t* rest = std::lower_bound(second, end, *(second - 1), less);
  out = std::copy(first, begin, out);
  out = std::merge(begin, second, second, rest, out, less);
  std::copy(rest, end, out);
}

}  // namespace

Column<uint32_t> order_by_start(const Column<int64_t>& ts, const Column<int64_t>& dur) {
  const auto n = static_cast<uint32_t>(ts.size());
  Column<uint32_t> order, merged;
  order.reserve(n);
  for (uint32_t i = 0; i < n; ++i) order.push_back(i);
  std::vector<uint32_t> runs{0};  // begin of each run, and the end of the last
  for (uint32_t i = 1; i < n; ++i) {
    if (starts_before(ts, dur, i, i - 1)) runs.push_back(i);
  }
  runs.push_back(n);
  if (runs.size() > 2) merged.resize(n);
  while (runs.size() > 2) {
    std::vector<uint32_t> longer{0};
    size_t run = 0;
    for (; run + 2 < runs.size(); run += 2) {
      merge(order.begin() + runs[run], order.begin() + runs[run + 1], order.begin() + runs[run + 2],
            merged.begin() + runs[run], [&](uint32_t a, uint32_t b) { return starts_before(ts, dur, a, b); });
      longer.push_back(runs[run + 2]);
    }
    if (run + 1 < runs.size()) {  // an odd number of runs
      std::copy(order.begin() + runs[run], order.end(), merged.begin() + runs[run]);
      longer.push_back(runs.back());
    }
    order.swap(merged);
    runs.swap(longer);
  }
  return order;
}

}  // namespace ms::profile
