// Parses and names the element types, sizes and object fields in PyTorch's pickles.
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

// Parse torch.bfloat16 and torch.BFloat16Storage; nullopt for any other symbol.
std::optional<SafetensorsDType> parse_torch_dtype(PickleValue symbol);
std::optional<SafetensorsDType> parse_torch_storage(PickleValue symbol);

// "bfloat16" and "BFloat16Storage", both in module torch; the storage name is empty for a type that has none.
std::string_view torch_dtype_name(SafetensorsDType dtype);
std::string_view torch_storage_name(SafetensorsDType dtype);

// Parses torch.Size((2, 3)) or the bare tuple: at most kMaxTorchAxes non-negative numbers. Throws kCorruptData, with
// `where` first in the message.
inline constexpr size_t kMaxTorchAxes = 64;
std::vector<uint64_t> parse_torch_size(PickleValue value, const std::string& where);

// Returns true for an instance of a class of this name in any module: PyTorch moves classes between modules.
bool is_instance_of(PickleValue value, std::string_view class_name);

// Returns the fields that BUILD sets on an instance: __dict__, or (__dict__ or None, __slots__).
std::map<std::string_view, PickleValue> fields_of(PickleValue instance);

}  // namespace ms::convert
