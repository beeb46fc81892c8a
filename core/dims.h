// Lengths of a tensor's axes, or a position in it: outermost axis first. A vector with inline storage, so that shapes
// do not use the heap (a training step creates thousands).
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <ostream>

#include "core/error.h"

namespace ms::core {

class Dims {
 public:
  // Axes of a tensor. More, which only a file can request, throw kUnsupported.
  static constexpr size_t kMaxAxes = 8;

  using value_type = int64_t;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using reference = int64_t&;
  using const_reference = const int64_t&;
  using iterator = int64_t*;
  using const_iterator = const int64_t*;

  Dims() = default;
  explicit Dims(size_t axes, int64_t value = 0) { assign(axes, value); }
  Dims(std::initializer_list<int64_t> values) : Dims(values.begin(), values.end()) {}
  template <std::input_iterator Iterator>
  Dims(Iterator first, Iterator last) {
    assign(first, last);
  }

  size_t size() const { return axes_; }
  bool empty() const { return axes_ == 0; }
  int64_t* data() { return values_.data(); }
  const int64_t* data() const { return values_.data(); }
  iterator begin() { return data(); }
  iterator end() { return data() + axes_; }
  const_iterator begin() const { return data(); }
  const_iterator end() const { return data() + axes_; }
  int64_t& operator[](size_t axis) { return values_[axis]; }
  int64_t operator[](size_t axis) const { return values_[axis]; }
  int64_t& front() { return values_[0]; }
  int64_t front() const { return values_[0]; }
  int64_t& back() { return values_[axes_ - 1]; }
  int64_t back() const { return values_[axes_ - 1]; }

  void clear() { axes_ = 0; }
  void resize(size_t axes, int64_t value = 0) {
    const size_t before = axes_;
    set_size(axes);
    for (size_t axis = before; axis < axes; ++axis) values_[axis] = value;
  }
  void assign(size_t axes, int64_t value) {
    clear();
    resize(axes, value);
  }
  template <std::input_iterator Iterator>
  void assign(Iterator first, Iterator last) {
    clear();
    for (; first != last; ++first) push_back(static_cast<int64_t>(*first));
  }
  void push_back(int64_t value) {
    set_size(axes_ + 1);
    back() = value;
  }
  void pop_back() { --axes_; }

  iterator insert(const_iterator before, int64_t value) { return insert(before, &value, &value + 1); }
  iterator insert(const_iterator before, size_t count, int64_t value) {
    const Dims values(count, value);
    return insert(before, values.begin(), values.end());
  }
  template <std::forward_iterator Iterator>
  iterator insert(const_iterator before, Iterator first, Iterator last) {
    const auto at = before - begin();
    const auto old_end = static_cast<std::ptrdiff_t>(axes_), count = std::distance(first, last);
    set_size(axes_ + static_cast<size_t>(count));
    std::copy_backward(begin() + at, begin() + old_end, end());
    std::copy(first, last, begin() + at);
    return begin() + at;
  }
  iterator erase(const_iterator axis) { return erase(axis, axis + 1); }
  iterator erase(const_iterator first, const_iterator last) {
    const auto at = first - begin();
    axes_ = static_cast<size_t>(std::copy(last, const_iterator(end()), begin() + at) - begin());
    return begin() + at;
  }

  friend bool operator==(const Dims& a, const Dims& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }
  friend std::strong_ordering operator<=>(const Dims& a, const Dims& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }
  friend std::ostream& operator<<(std::ostream& out, const Dims& dims) {  // [2, 3]
    out << '[';
    for (size_t axis = 0; axis < dims.axes_; ++axis) out << (axis == 0 ? "" : ", ") << dims.values_[axis];
    return out << ']';
  }

 private:
  void set_size(size_t axes) {
    if (axes > kMaxAxes) {
      throw Error(ErrorCode::kUnsupported, cat("a tensor of ", axes, " axes; at most ", kMaxAxes, " are supported"));
    }
    axes_ = axes;
  }

  std::array<int64_t, kMaxAxes> values_{};
  size_t axes_ = 0;
};

}  // namespace ms::core
