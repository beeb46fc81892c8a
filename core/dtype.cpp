#include "core/dtype.h"

#include <array>

namespace ms::core {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  int64_t size_bytes;
};
constexpr std::array<Entry, 19> kEntries = {{{DType::kFp32, "fp32", 4},
                                             {DType::kBf16, "bf16", 2},
                                             {DType::kFp16, "fp16", 2},
                                             {DType::kFp64, "fp64", 8},
                                             {DType::kInt8, "int8", 1},
                                             {DType::kUInt8, "uint8", 1},
                                             {DType::kInt16, "int16", 2},
                                             {DType::kInt32, "int32", 4},
                                             {DType::kInt64, "int64", 8},
                                             {DType::kUInt16, "uint16", 2},
                                             {DType::kBool, "bool", 1},
                                             {DType::kUInt32, "uint32", 4},
                                             {DType::kUInt64, "uint64", 8},
                                             {DType::kComplex64, "complex64", 8},
                                             {DType::kFp8E4M3, "fp8_e4m3", 1},
                                             {DType::kFp8E5M2, "fp8_e5m2", 1},
                                             {DType::kFp8E8M0, "fp8_e8m0", 1},
                                             {DType::kFp8E4M3Fnuz, "fp8_e4m3fnuz", 1},
                                             {DType::kFp8E5M2Fnuz, "fp8_e5m2fnuz", 1}}};

}  // namespace

int64_t size_of(DType dtype) { return kEntries[static_cast<size_t>(dtype)].size_bytes; }
std::string_view dtype_name(DType dtype) { return kEntries[static_cast<size_t>(dtype)].name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace ms::core
