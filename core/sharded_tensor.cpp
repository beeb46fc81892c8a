#include "core/sharded_tensor.h"

#include <array>

#include "core/error.h"

namespace ms::core {

int64_t num_elements(const Dims& dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

namespace {
constexpr std::array<std::string_view, kNumTensorRoles> kRoleNames = {"param",      "master", "exp_avg",
                                                                      "exp_avg_sq", "buffer", "momentum_buffer"};
}

std::string_view role_name(TensorRole role) { return kRoleNames[static_cast<size_t>(role)]; }

TensorRole parse_role(std::string_view name) {
  for (size_t i = 0; i < kRoleNames.size(); ++i) {
    if (kRoleNames[i] == name) return static_cast<TensorRole>(i);
  }
  throw Error(ErrorCode::kCorruptData, cat("unknown tensor role \"", name, "\""));
}

}  // namespace ms::core
