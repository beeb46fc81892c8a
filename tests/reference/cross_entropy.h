// Softmax cross entropy of one row: -log(softmax(logits)[label]).
#pragma once

#include <algorithm>

#include "tests/reference/array.h"

namespace ms::reference {

inline double cross_entropy(const Array& logits, size_t label) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  return std::log(sum) + most - logits[label];
}

}  // namespace ms::reference
