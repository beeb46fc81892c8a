// Reads and checks the header of a GGUF file (format: gguf/layout.h): which tensors it contains, their types and
// shapes, and where their data is.
//
// Every size is checked against the file before it is used. Key-value pairs are skipped, except the two that are
// needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/gguf/layout.h"
#include "core/dims.h"
#include "core/io/file.h"

namespace ms::convert {

class GgufReader {
 public:
  struct Tensor {
    std::string name;
    core::Dims shape;      // rows first
    uint32_t type = 0;     // ggml's number; a GgufType if has_known_type()
    int64_t at = 0;        // offset of its first byte in the file
    int64_t elements = 0;  // > 0
    bool again = false;    // an earlier tensor has the same name
    bool has_known_type() const;
    GgufType gguf_type() const { return static_cast<GgufType>(type); }
  };

  // Throws kNotFound, kIo, and kCorruptData for a file that is not GGUF of version 2 or 3, for a size that exceeds the
  // file, and for a tensor of a known type that ends after the end of the file.
  explicit GgufReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::string& architecture() const { return architecture_; }  // general.architecture; empty if absent
  std::span<const Tensor> tensors() const { return tensors_; }       // in file order
  const Tensor* find(std::string_view name) const;                   // the first of this name; null: none

  // Reads elements [first, first + count) of a tensor of a known type as stored; q8_0 is read as fp32, scale times
  // integer. Thread-safe. Throws kIo, kCorruptData.
  void read(const Tensor& tensor, int64_t first, int64_t count, std::byte* out) const;

 private:
  class Cursor;
  void read_pairs(Cursor& cursor, uint64_t count);
  void read_tensors(Cursor& cursor, uint64_t count);

  core::File file_;
  std::string architecture_;
  int64_t alignment_ = 32;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// "q8_0", "q4_K", "type 77": for messages.
std::string gguf_type_name(uint32_t type);

}  // namespace ms::convert
