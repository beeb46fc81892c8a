// Lays out a GGUF file: key-value pairs, then tensors, each at a multiple of 32 bytes.
//
//   "GGUF" u32 version 3, u64 tensors, u64 pairs
//   pairs:   string key, u32 type, value        strings: u64 length and bytes; arrays: u32 type, u64 length, values
//   tensors: string name, u32 axes, u64 sizes (the last axis first), u32 type, u64 offset in the data
//   data, from the next multiple of 32 on
//
// Sources: the GGUF specification of ggml; for q8_0 ggml-quants.c (quantize_row_q8_0_ref).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dims.h"

namespace ms::convert {

enum class GgufType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kBF16 = 30 };  // ggml's numbers

inline constexpr int64_t kQ8Block = 32;       // elements per scale
inline constexpr int64_t kQ8BlockBytes = 34;  // fp16 scale, 32 int8

int64_t gguf_bytes(GgufType type, int64_t elements);  // kQ8_0: elements must be a multiple of kQ8Block

// x = scale * q; scale is the block's largest magnitude / 127; q is rounded to nearest, ties away from zero. elements:
// a multiple of kQ8Block. out: gguf_bytes(kQ8_0, elements).
void quantize_q8_0(const float* values, int64_t elements, std::byte* out);
// The values of such blocks: scale * q.
void dequantize_q8_0(const std::byte* blocks, int64_t elements, float* out);

class GgufValues {
 public:
  void set(std::string_view key, uint32_t value);
  void set(std::string_view key, float value);
  void set_flag(std::string_view key, bool value);
  void set(std::string_view key, std::string_view text);
  void set(std::string_view key, std::span<const std::string> texts);
  void set(std::string_view key, std::span<const int32_t> values);
  void set(std::string_view key, std::span<const float> values);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, uint32_t type);
  std::string bytes_;
  uint64_t count_ = 0;
};

struct GgufTensor {
  std::string name;
  core::Dims shape;  // rows first
  GgufType type = GgufType::kF32;
};

struct GgufLayout {
  std::string header;            // everything before the data
  std::vector<int64_t> offsets;  // one per tensor, in the file
  int64_t file_bytes = 0;
};

GgufLayout lay_out_gguf(const GgufValues& values, std::span<const GgufTensor> tensors);

}  // namespace ms::convert
