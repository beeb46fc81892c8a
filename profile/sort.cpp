#include "profile/sort.h"

#include <algorithm>
#include <numeric>

namespace ms::profile {

std::vector<uint32_t> order_by_start(const std::vector<int64_t>& ts) {
  std::vector<uint32_t> order(ts.size()), merged(ts.size());
  std::iota(order.begin(), order.end(), 0u);
  std::vector<size_t> runs{0};  // where each begins, and the end of the last
  for (size_t i = 1; i < ts.size(); ++i) {
    if (ts[i] < ts[i - 1]) runs.push_back(i);
  }
  runs.push_back(ts.size());
  while (runs.size() > 2) {
    std::vector<size_t> longer{0};
    size_t run = 0;
    for (; run + 2 < runs.size(); run += 2) {
      std::merge(order.begin() + static_cast<std::ptrdiff_t>(runs[run]),
                 order.begin() + static_cast<std::ptrdiff_t>(runs[run + 1]),
                 order.begin() + static_cast<std::ptrdiff_t>(runs[run + 1]),
                 order.begin() + static_cast<std::ptrdiff_t>(runs[run + 2]),
                 merged.begin() + static_cast<std::ptrdiff_t>(runs[run]),
                 [&](uint32_t a, uint32_t b) { return ts[a] < ts[b]; });
      longer.push_back(runs[run + 2]);
    }
    if (run + 1 < runs.size()) {  // an odd one out
      std::copy(order.begin() + static_cast<std::ptrdiff_t>(runs[run]), order.end(),
                merged.begin() + static_cast<std::ptrdiff_t>(runs[run]));
      longer.push_back(runs.back());
    }
    order.swap(merged);
    runs.swap(longer);
  }
  return order;
}

}  // namespace ms::profile
