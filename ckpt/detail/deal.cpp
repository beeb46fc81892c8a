#include "ckpt/detail/deal.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

namespace ms::ckpt {

std::vector<int> deal(std::span<const int64_t> bytes, int parts) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  using Load = std::pair<int64_t, int>;  // bytes, part
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int part = 0; part < parts; ++part) loads.push({0, part});
  std::vector<int> owner(bytes.size());
  for (const size_t piece : order) {
    const auto [load, part] = loads.top();
    loads.pop();
    owner[piece] = part;
    loads.push({load + bytes[piece], part});
  }
  return owner;
}

}  // namespace ms::ckpt
