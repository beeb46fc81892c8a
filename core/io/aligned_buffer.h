// Memory that O_DIRECT takes, of huge pages where the system has them: small ones cost more to touch than to fill.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace ms::core {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size_bytes);  // not touched; throws std::bad_alloc
  std::byte* data() const { return data_.get(); }
  size_t size_bytes() const { return size_bytes_; }
  // Room for so many bytes; what was in it is lost where it has to grow.
  void need(size_t size_bytes) {
    if (size_bytes_ >= size_bytes) return;
    *this = {};  // not both at a time
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
