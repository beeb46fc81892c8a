#include "train/model/sparse_row_grad.h"

#include <algorithm>

#include "core/error.h"
#include "train/ops/embedding.h"

namespace ms::train {

SparseRowGrad::SparseRowGrad(int64_t rows, int64_t width, int64_t most_ids)
    : width_(width), most_(std::min(rows, most_ids)), place_of_row_(static_cast<size_t>(rows), -1) {
  rows_.reserve(static_cast<size_t>(most_));
}

void SparseRowGrad::add(ops::Context& context, std::span<const int32_t> ids, const core::TensorView& dy,
                        int64_t first_id) {
  if (!sums_.defined()) {
    sums_ = core::Tensor::zeros(context.arena, core::DType::kFp32, {most_, width_}, core::MemoryTag::kGrad);
  }
  places_.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t row = ids[i] - first_id;
    if (row < 0 || row >= static_cast<int64_t>(place_of_row_.size())) {
      places_[i] = -1;
      continue;
    }
    int32_t& place = place_of_row_[static_cast<size_t>(row)];
    if (place < 0) {
      MS_CHECK(static_cast<int64_t>(rows_.size()) < most_, "gradients of more than ", most_, " ids");
      place = static_cast<int32_t>(rows_.size());
      rows_.push_back(static_cast<int32_t>(row));
    }
    places_[i] = place;
  }
  ops::embedding_backward(context, places_, dy, sums_, 0);
}

void SparseRowGrad::fold(ops::Context& context, const core::TensorView& main_grad) {
  if (!sums_.defined()) return;
  ops::embedding_backward(context, rows_, sums_.view().rows(0, static_cast<int64_t>(rows_.size())), main_grad, 0);
  sums_.reset();
  for (const int32_t row : rows_) place_of_row_[static_cast<size_t>(row)] = -1;
  rows_.clear();
}

}  // namespace ms::train
