// A growing array for one column of the store, for trivially copyable values.
//
// Large arrays are mapped separately and grow in place (mremap), so that growing never holds two copies and unused
// capacity costs no memory: a store of n events takes n times the size of a row, not up to three times as much.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace ms::profile {

template <class T>
class Column {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  Column() = default;
  Column(Column&& other) noexcept { swap(other); }
  Column& operator=(Column&& other) noexcept {
    swap(other);
    return *this;
  }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;
  ~Column() { release(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void push_back(T value) {
    if (size_ == capacity_) grow(size_ + 1);
    data_[size_++] = value;
  }
  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  // New elements are zero.
  void resize(size_t n) {
    reserve(n);
    if (n > size_) std::memset(static_cast<void*>(data_ + size_), 0, (n - size_) * sizeof(T));
    size_ = n;
  }
  void append(const T* values, size_t n) {
    reserve(size_ + n);
    if (n > 0) std::memcpy(static_cast<void*>(data_ + size_), values, n * sizeof(T));
    size_ += n;
  }
  // Appends values[i] for each i of `order`.
  template <class Order>
  void append_from(const Column& values, const Order& order) {
    reserve(size_ + order.size());
    T* out = data_ + size_;
    for (const auto i : order) *out++ = values[i];
    size_ += order.size();
  }
  void clear() { size_ = 0; }
  void swap(Column& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  static constexpr size_t kPagedBytes = size_t{1} << 17;

  static bool paged(size_t capacity) { return capacity * sizeof(T) >= kPagedBytes; }

  void grow(size_t wanted) {
    size_t capacity = std::max<size_t>({wanted, 2 * capacity_, 16});
    if (paged(capacity)) capacity = (capacity * sizeof(T) + kPagedBytes - 1) / kPagedBytes * kPagedBytes / sizeof(T);
    void* grown = nullptr;
    if (!paged(capacity)) {
      grown = std::realloc(static_cast<void*>(data_), capacity * sizeof(T));
      if (grown == nullptr) throw std::bad_alloc();
    } else if (paged(capacity_)) {
      grown = ::mremap(static_cast<void*>(data_), capacity_ * sizeof(T), capacity * sizeof(T), MREMAP_MAYMOVE);
      if (grown == MAP_FAILED) throw std::bad_alloc();
    } else {
      grown = ::mmap(nullptr, capacity * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (grown == MAP_FAILED) throw std::bad_alloc();
      if (size_ > 0) std::memcpy(grown, data_, size_ * sizeof(T));
      std::free(data_);
    }
    data_ = static_cast<T*>(grown);
    capacity_ = capacity;
  }
  void release() {
    if (paged(capacity_)) {
      ::munmap(static_cast<void*>(data_), capacity_ * sizeof(T));
    } else {
      std::free(data_);
    }
  }

  T* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace ms::profile
