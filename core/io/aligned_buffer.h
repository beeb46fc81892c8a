// Memory aligned for O_DIRECT, in huge pages if the system has them: touching small pages costs more than filling them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace ms::core {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size_bytes);  // pages are not touched; throws std::bad_alloc
  std::byte* data() const { return data_.get(); }
  size_t size_bytes() const { return size_bytes_; }
  // Ensures that the buffer has this many bytes; growing loses the contents.
  void need(size_t size_bytes) {
    if (size_bytes_ >= size_bytes) return;
    *this = {};  // frees the old memory first
    *this = AlignedBuffer(size_bytes);
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_bytes_ = 0;
};

}  // namespace ms::core
