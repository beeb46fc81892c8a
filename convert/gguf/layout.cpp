#include "convert/gguf/layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "kernels/convert.h"

namespace ms::convert {
namespace {

constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;
// Value types.
constexpr uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<uint64_t>(text.size()));
  out.append(text);
}

int64_t aligned(int64_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

int64_t gguf_bytes(GgufType type, int64_t elements) {
  switch (type) {
    case GgufType::kF32:
      return elements * 4;
    case GgufType::kF16:
    case GgufType::kBF16:
      return elements * 2;
    case GgufType::kQ8_0:
      MS_CHECK(elements % kQ8Block == 0, elements, " elements of q8_0");
      return elements / kQ8Block * kQ8BlockBytes;
  }
  return 0;
}

void quantize_q8_0(const float* values, int64_t elements, std::byte* out) {
  MS_CHECK(elements % kQ8Block == 0, elements, " elements of q8_0");
  for (int64_t block = 0; block < elements / kQ8Block; ++block) {
    const float* in = values + block * kQ8Block;
    float largest = 0;
    for (int64_t i = 0; i < kQ8Block; ++i) largest = std::max(largest, std::abs(in[i]));
    const float scale = largest / 127.0f, inverse = scale != 0 ? 1.0f / scale : 0.0f;
    std::byte* to = out + block * kQ8BlockBytes;
    kernels::fp16 half{};
    kernels::convert(&scale, &half, 1);
    static_assert(sizeof half == 2);
    std::memcpy(to, &half, sizeof half);
    for (int64_t i = 0; i < kQ8Block; ++i) {
      const float rounded = std::round(in[i] * inverse);
      to[2 + i] =
          static_cast<std::byte>(std::abs(rounded) <= 127.0f ? static_cast<int8_t>(rounded) : int8_t{0});  // NaN
    }
  }
}

void dequantize_q8_0(const std::byte* blocks, int64_t elements, float* out) {
  MS_CHECK(elements % kQ8Block == 0, elements, " elements of q8_0");
  for (int64_t block = 0; block < elements / kQ8Block; ++block, blocks += kQ8BlockBytes) {
    kernels::fp16 half{};
    float scale = 0;
    std::memcpy(&half, blocks, sizeof half);
    kernels::convert(&half, &scale, 1);
    for (int64_t i = 0; i < kQ8Block; ++i) *out++ = scale * static_cast<float>(static_cast<int8_t>(blocks[2 + i]));
  }
}

void GgufValues::begin(std::string_view key, uint32_t type) {
  put_text(bytes_, key);
  put(bytes_, type);
  ++count_;
}

void GgufValues::set(std::string_view key, uint32_t value) {
  begin(key, kUint32);
  put(bytes_, value);
}

void GgufValues::set(std::string_view key, float value) {
  begin(key, kFloat32);
  put(bytes_, value);
}

void GgufValues::set_flag(std::string_view key, bool value) {
  begin(key, kBool);
  put(bytes_, static_cast<uint8_t>(value));
}

void GgufValues::set(std::string_view key, std::string_view text) {
  begin(key, kString);
  put_text(bytes_, text);
}

void GgufValues::set(std::string_view key, std::span<const std::string> texts) {
  begin(key, kArray);
  put(bytes_, kString);
  put(bytes_, static_cast<uint64_t>(texts.size()));
  for (const std::string& text : texts) put_text(bytes_, text);
}

void GgufValues::set(std::string_view key, std::span<const int32_t> values) {
  begin(key, kArray);
  put(bytes_, kInt32);
  put(bytes_, static_cast<uint64_t>(values.size()));
  for (const int32_t value : values) put(bytes_, value);
}

void GgufValues::set(std::string_view key, std::span<const float> values) {
  begin(key, kArray);
  put(bytes_, kFloat32);
  put(bytes_, static_cast<uint64_t>(values.size()));
  for (const float value : values) put(bytes_, value);
}

GgufLayout lay_out_gguf(const GgufValues& values, std::span<const GgufTensor> tensors) {
  GgufLayout layout;
  std::string& header = layout.header;
  header = "GGUF";
  put(header, kVersion);
  put(header, static_cast<uint64_t>(tensors.size()));
  put(header, values.count());
  header += values.bytes();
  int64_t at = 0;
  for (const GgufTensor& tensor : tensors) {
    put_text(header, tensor.name);
    put(header, static_cast<uint32_t>(tensor.shape.size()));
    int64_t elements = 1;
    for (size_t axis = tensor.shape.size(); axis-- > 0;) {
      put(header, static_cast<uint64_t>(tensor.shape[axis]));
      elements *= tensor.shape[axis];
    }
    put(header, static_cast<uint32_t>(tensor.type));
    put(header, static_cast<uint64_t>(at));
    layout.offsets.push_back(at);
    at = aligned(at + gguf_bytes(tensor.type, elements));
  }
  header.resize(static_cast<size_t>(aligned(static_cast<int64_t>(header.size()))), '\0');
  for (int64_t& offset : layout.offsets) offset += static_cast<int64_t>(header.size());
  layout.file_bytes = static_cast<int64_t>(header.size()) + at;
  return layout;
}

}  // namespace ms::convert
