#include "convert/convert_options.h"

#include <charconv>
#include <map>

#include "convert/detail/printable.h"
#include "core/error.h"

namespace ms::convert {

using core::cat;
using core::Error;
using core::ErrorCode;

MegatronNaming parse_norm_naming(const std::string& text, const std::string& flag) {
  if (text == "local") return MegatronNaming::kLocal;
  if (text == "te") return MegatronNaming::kTransformerEngine;
  throw Error(ErrorCode::kInvalidArgument, cat(flag, " ", detail::printable(text), ": expected local or te"));
}

MegatronArgsForm parse_args_form(const std::string& text, const std::string& flag) {
  if (text == "namespace") return MegatronArgsForm::kNamespace;
  if (text == "dict") return MegatronArgsForm::kDict;
  if (text == "omit") return MegatronArgsForm::kOmit;
  throw Error(ErrorCode::kInvalidArgument,
              cat(flag, " ", detail::printable(text), ": expected namespace, dict or omit"));
}

core::DType parse_weight_dtype(const std::string& text, const std::string& flag, const std::string& also) {
  const auto dtype = core::parse_dtype(text);
  if (dtype == core::DType::kFp32 || dtype == core::DType::kBf16 || dtype == core::DType::kFp16) return *dtype;
  throw Error(ErrorCode::kInvalidArgument, cat(flag, " ", detail::printable(text), ": expected fp32, bf16",
                                               also.empty() ? " or fp16" : ", fp16 or ", also));
}

int64_t parse_size_bytes(const std::string& text, const std::string& flag) {
  static const std::map<std::string, int64_t> kUnits = {
      {"", 1},          {"B", 1},         {"KB", 1'000},   {"MB", 1'000'000}, {"GB", 1'000'000'000},
      {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto unit = kUnits.find(std::string(end, text.data() + text.size()));
  int64_t bytes = 0;
  if (error != std::errc() || unit == kUnits.end() || number <= 0 ||
      __builtin_mul_overflow(number, unit->second, &bytes)) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(flag, " ", detail::printable(text), ": expected a size such as 5GB, 500MB or 2GiB"));
  }
  return bytes;
}

}  // namespace ms::convert
