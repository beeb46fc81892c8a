// The experts with the highest scores of a token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ms::ops::detail {

// Fills `best`, which has at most as many elements as `scores`, with the indices of the highest scores, in descending
// order; of equal ones the lower index comes first. They are distinct whatever the scores are: one that is not a number
// is never higher than another.
inline void top_experts(std::span<const float> scores, std::span<int32_t> best) {
  for (size_t e = 0; e < scores.size(); ++e) {
    size_t place = e < best.size() ? e : best.size();
    while (place > 0 && scores[e] > scores[static_cast<size_t>(best[place - 1])]) --place;
    if (place >= best.size()) continue;
    for (size_t i = (e < best.size() ? e : best.size() - 1); i > place; --i) best[i] = best[i - 1];
    best[place] = static_cast<int32_t>(e);
  }
}

}  // namespace ms::ops::detail
