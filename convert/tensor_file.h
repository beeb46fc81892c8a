// A file of named tensors in any format: what Hugging Face folders consist of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "convert/safetensors.h"

namespace ms::convert {

class TensorFile {
 public:
  // begin, end: byte range of its dense row-major data in the concatenation of all tensors, for read().
  using Tensor = SafetensorsHeader::Tensor;

  virtual ~TensorFile() = default;
  virtual const std::string& path() const = 0;
  virtual size_t size() const = 0;  // number of tensors
  virtual Tensor operator[](size_t index) const = 0;
  virtual std::optional<size_t> find(std::string_view name) const = 0;
  // Reads bytes from `offset` on, within one tensor. Thread-safe. Throws kIo, kCorruptData.
  virtual void read(uint64_t offset, std::span<std::byte> out) const = 0;
  // See ckpt::Source.
  virtual void begin_one_pass() {}
  virtual void end_one_pass(bool /*all*/) {}
};

// Throws as SafetensorsReader.
std::unique_ptr<TensorFile> open_safetensors(const std::string& path);

}  // namespace ms::convert
