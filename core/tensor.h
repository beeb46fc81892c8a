// Tensor owns a block of an arena, alone or with others; TensorView refers to one. Both are dense and row-major,
// described by shape and dtype.
//
// Pass views, return tensors. A view must not outlive its tensor.
#pragma once

#include <cstddef>
#include <span>

#include "core/arena.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/sharded_tensor.h"

namespace ms::core {

class TensorView {
 public:
  TensorView() = default;
  TensorView(void* data, DType dtype, Dims shape)
      : data_(static_cast<std::byte*>(data)), dtype_(dtype), shape_(std::move(shape)), size_(num_elements(shape_)) {}

  const Dims& shape() const { return shape_; }
  int64_t dim(int axis) const {
    return shape_[static_cast<size_t>(axis < 0 ? axis + static_cast<int>(shape_.size()) : axis)];
  }
  int64_t size() const { return size_; }  // elements
  int64_t size_bytes() const { return size_ * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  bool defined() const { return data_ != nullptr; }
  std::byte* bytes() const { return data_; }

  // The elements; throws kInternal if T does not match the dtype.
  template <class T>
  T* data() const {
    MS_CHECK(dtype_of<T>() == dtype_, "tensor of ", dtype_name(dtype_), " read as ", dtype_name(dtype_of<T>()));
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  std::span<T> elements() const {
    return {data<T>(), static_cast<size_t>(size_)};
  }

  TensorView reshaped(Dims shape) const;              // same elements; the number of elements must agree
  TensorView rows(int64_t begin, int64_t end) const;  // rows [begin, end) of the outermost axis

 private:
  std::byte* data_ = nullptr;
  DType dtype_ = DType::kFp32;
  Dims shape_;
  int64_t size_ = 0;
};

class Tensor {
 public:
  Tensor() = default;
  // Uninitialised; see zeros.
  Tensor(Arena& arena, DType dtype, Dims shape, MemoryTag tag);
  static Tensor zeros(Arena& arena, DType dtype, Dims shape, MemoryTag tag);

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  const Dims& shape() const { return view_.shape(); }
  int64_t dim(int axis) const { return view_.dim(axis); }
  int64_t size() const { return view_.size(); }
  int64_t size_bytes() const { return view_.size_bytes(); }
  DType dtype() const { return view_.dtype(); }
  bool defined() const { return view_.defined(); }
  std::byte* bytes() const { return view_.bytes(); }
  template <class T>
  T* data() const {
    return view_.data<T>();
  }
  template <class T>
  std::span<T> elements() const {
    return view_.elements<T>();
  }
  void reset() { *this = Tensor(); }  // frees the memory, if it has no other owner
  // Another owner of the same elements.
  Tensor share();
  void reshape(Dims shape) { view_ = view_.reshaped(std::move(shape)); }

 private:
  Buffer buffer_;
  TensorView view_;
};

}  // namespace ms::core
