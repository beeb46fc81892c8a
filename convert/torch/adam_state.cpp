#include "convert/torch/adam_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace ms::convert {
namespace {

constexpr double kMaxCount = 1e15;

bool is_number(PickleValue value) { return value.is(PickleKind::kInt) || value.is(PickleKind::kFloat); }

std::optional<int64_t> count_of(double value) {
  return value >= 0 && value < kMaxCount ? std::optional<int64_t>(std::llround(value)) : std::nullopt;
}

}  // namespace

std::optional<int64_t> read_count(const TorchFile& file, PickleValue value) {
  if (is_number(value)) return count_of(value.real());
  const auto tensor = file.tensor(value);
  if (!tensor || tensor->elements() != 1) return std::nullopt;
  if (tensor->dtype == SafetensorsDType::kI64) {
    int64_t whole = 0;
    file.read(*tensor, 0, std::as_writable_bytes(std::span(&whole, 1)));
    return whole >= 0 ? std::optional(whole) : std::nullopt;
  }
  if (tensor->dtype != SafetensorsDType::kF32) return std::nullopt;
  float real = 0;
  file.read(*tensor, 0, std::as_writable_bytes(std::span(&real, 1)));
  return count_of(static_cast<double>(real));
}

void add_adam_group(PickleValue group, nlohmann::json& common) {
  if (const auto step = group.find("step"); step && is_number(*step)) {
    if (const auto count = count_of(step->real())) common["step"] = *count;
  }
  const auto set = [&](const char* name, PickleValue value) {
    if (is_number(value)) common["config"]["optimizer"][name] = value.real();
  };
  if (const auto betas = group.find("betas"); betas && betas->is(PickleKind::kTuple) && betas->items().size() == 2) {
    set("adam_beta1", betas->items()[0]);
    set("adam_beta2", betas->items()[1]);
  }
  if (const auto eps = group.find("eps")) set("adam_eps", *eps);
}

}  // namespace ms::convert
