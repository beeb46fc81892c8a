#include "core/tensor.h"

#include <cstring>

namespace ms::core {

TensorView TensorView::reshaped(Dims shape) const {
  MS_CHECK(num_elements(shape) == size_, "reshape ", shape_, " to ", shape);
  return TensorView(data_, dtype_, std::move(shape));
}

TensorView TensorView::rows(int64_t begin, int64_t end) const {
  MS_CHECK(!shape_.empty() && 0 <= begin && begin <= end && end <= shape_[0], "rows ", begin, "..", end, " of ",
           shape_);
  Dims shape = shape_;
  shape[0] = end - begin;
  const int64_t row_bytes = shape_[0] == 0 ? 0 : size_bytes() / shape_[0];
  return TensorView(data_ + begin * row_bytes, dtype_, std::move(shape));
}

Tensor::Tensor(Arena& arena, DType dtype, Dims shape, MemoryTag tag)
    : buffer_(arena.allocate(num_elements(shape) * size_of(dtype), tag)),
      view_(buffer_.data(), dtype, std::move(shape)) {}

Tensor Tensor::zeros(Arena& arena, DType dtype, Dims shape, MemoryTag tag) {
  Tensor tensor(arena, dtype, std::move(shape), tag);
  std::memset(tensor.bytes(), 0, static_cast<size_t>(tensor.size_bytes()));
  return tensor;
}

Tensor Tensor::share() {
  Tensor other;
  other.buffer_ = buffer_.share();
  other.view_ = view_;
  return other;
}

}  // namespace ms::core
