#include "convert/torch/torch_types.h"

#include <algorithm>

#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

// "FloatStorage" and "float32", both in module torch.
struct TorchType {
  std::string_view storage, dtype;
  SafetensorsDType type;
};
constexpr TorchType kTypes[] = {{"FloatStorage", "float32", SafetensorsDType::kF32},
                                {"HalfStorage", "float16", SafetensorsDType::kF16},
                                {"BFloat16Storage", "bfloat16", SafetensorsDType::kBF16},
                                {"DoubleStorage", "float64", SafetensorsDType::kF64},
                                {"LongStorage", "int64", SafetensorsDType::kI64},
                                {"IntStorage", "int32", SafetensorsDType::kI32},
                                {"ShortStorage", "int16", SafetensorsDType::kI16},
                                {"CharStorage", "int8", SafetensorsDType::kI8},
                                {"ByteStorage", "uint8", SafetensorsDType::kU8},
                                {"BoolStorage", "bool", SafetensorsDType::kBool},
                                {"ComplexFloatStorage", "complex64", SafetensorsDType::kC64},
                                {"", "float8_e4m3fn", SafetensorsDType::kF8E4M3},
                                {"", "float8_e5m2", SafetensorsDType::kF8E5M2},
                                {"", "float8_e8m0fnu", SafetensorsDType::kF8E8M0},
                                {"", "float8_e4m3fnuz", SafetensorsDType::kF8E4M3Fnuz},
                                {"", "float8_e5m2fnuz", SafetensorsDType::kF8E5M2Fnuz},
                                {"", "uint16", SafetensorsDType::kU16},
                                {"", "uint32", SafetensorsDType::kU32},
                                {"", "uint64", SafetensorsDType::kU64}};

std::optional<SafetensorsDType> find_type(PickleValue symbol, std::string_view TorchType::*name) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TorchType& type) {
    return !(type.*name).empty() && symbol.is_symbol("torch", type.*name);
  });
  return found == std::end(kTypes) ? std::nullopt : std::optional(found->type);
}

const TorchType& find_type(SafetensorsDType dtype) {
  const auto found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TorchType& type) { return type.type == dtype; });
  MS_CHECK(found != std::end(kTypes), safetensors_dtype_name(dtype), " is no type of PyTorch");
  return *found;
}

}  // namespace

std::string_view torch_dtype_name(SafetensorsDType dtype) { return find_type(dtype).dtype; }
std::string_view torch_storage_name(SafetensorsDType dtype) { return find_type(dtype).storage; }

std::optional<SafetensorsDType> parse_torch_dtype(PickleValue symbol) { return find_type(symbol, &TorchType::dtype); }
std::optional<SafetensorsDType> parse_torch_storage(PickleValue symbol) {
  return find_type(symbol, &TorchType::storage);
}

std::vector<uint64_t> parse_torch_size(PickleValue value, const std::string& where) {
  const PickleValue plain =
      value.is_call_of("torch", "Size") && !value.arguments().empty() ? value.arguments()[0] : value;
  std::vector<uint64_t> values;
  for (const PickleValue item : plain.items()) {
    if (item.integer() < 0)
      throw Error(ErrorCode::kCorruptData, cat(where, ": a tensor with a negative size or stride"));
    values.push_back(static_cast<uint64_t>(item.integer()));
  }
  if (values.size() > kMaxTorchAxes) {
    throw Error(ErrorCode::kCorruptData, cat(where, ": a tensor of ", values.size(), " axes"));
  }
  return values;
}

bool is_instance_of(PickleValue value, std::string_view class_name) {
  return value.is(PickleKind::kCall) && value.callee().is(PickleKind::kSymbol) && value.callee().text() == class_name;
}

std::map<std::string_view, PickleValue> fields_of(PickleValue instance) {
  std::map<std::string_view, PickleValue> fields;
  const auto add = [&](PickleValue dict) {
    if (!dict.is(PickleKind::kDict)) return;
    for (const auto& [key, value] : dict.pairs()) {
      if (key.is(PickleKind::kString)) fields.insert_or_assign(key.text(), value);
    }
  };
  const auto state = instance.state();
  if (!state) return fields;
  add(*state);
  if (state->is(PickleKind::kTuple)) {
    for (const PickleValue part : state->items()) add(part);
  }
  return fields;
}

}  // namespace ms::convert
