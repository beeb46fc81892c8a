// How a pickle of PyTorch says element types, sizes and the fields of its objects.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/safetensors.h"
#include "convert/torch/pickle.h"

namespace ms::convert {

// torch.bfloat16, torch.BFloat16Storage: nothing for another symbol.
std::optional<SafetensorsDType> parse_torch_dtype(PickleValue symbol);
std::optional<SafetensorsDType> parse_torch_storage(PickleValue symbol);

// "bfloat16" and "BFloat16Storage", of module torch; the latter is empty for a type that has none.
std::string_view torch_dtype_name(SafetensorsDType dtype);
std::string_view torch_storage_name(SafetensorsDType dtype);

// torch.Size((2, 3)), or the bare tuple; at most kMaxTorchAxes numbers that are not negative. Throws kCorruptData,
// which `where` begins.
inline constexpr size_t kMaxTorchAxes = 64;
std::vector<uint64_t> parse_torch_size(PickleValue value, const std::string& where);

// True for an instance of a class of this name, whatever module it is in: classes move.
bool is_instance_of(PickleValue value, std::string_view class_name);

// What BUILD gave an instance: __dict__, or (__dict__ or None, __slots__).
std::map<std::string_view, PickleValue> fields_of(PickleValue instance);

}  // namespace ms::convert
