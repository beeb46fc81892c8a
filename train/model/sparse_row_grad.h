// The gradient of an embedding as sums for only the rows that a step uses. A step uses few rows of a vocabulary, and a
// dense gradient would take as much memory as the embedding's weight. The sums take memory only between the first add
// and the fold into the dense gradient.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::train {

class SparseRowGrad {
 public:
  // Of an embedding [rows, width]; most_ids: how many are added at most before a fold.
  SparseRowGrad(int64_t rows, int64_t width, int64_t most_ids);

  // dy [n, width] to the sums of ids [n], in their order. Ids outside first_id .. first_id + rows are passed over.
  void add(ops::Context& context, std::span<const int32_t> ids, const core::TensorView& dy, int64_t first_id);
  // main_grad [rows, width] += the sums, which begin anew.
  void fold(ops::Context& context, const core::TensorView& main_grad);

 private:
  int64_t width_, most_;
  std::vector<int32_t> rows_;          // whose sums they are, in the order that they came in
  std::vector<int32_t> place_of_row_;  // -1: has no sum yet
  std::vector<int32_t> places_;        // of the ids of one call
  core::Tensor sums_;                  // fp32 [most distinct rows, width]
};

}  // namespace ms::train
