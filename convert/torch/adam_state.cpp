#include "convert/torch/adam_state.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>

#include "core/io/json.h"

namespace ms::convert {
namespace {

constexpr double kMaxCount = 1e15;
constexpr std::string_view kNoSettings[] = {"params",          "is_expert_parallel", "default_config",
                                            "is_decoupled_lr", "pre_wd_mult",        "pre_lr_mult"};

bool is_number(PickleValue value) { return value.is(PickleKind::kInt) || value.is(PickleKind::kFloat); }

std::optional<int64_t> count_of(double value) {
  return value >= 0 && value < kMaxCount ? std::optional<int64_t>(std::llround(value)) : std::nullopt;
}

// A number in the pickle, or the value of a one-element tensor.
std::optional<double> read_real(const TorchFile* file, PickleValue value) {
  std::optional<double> real;
  if (is_number(value)) {
    real = value.real();
  } else if (const auto tensor = file == nullptr ? std::nullopt : file->tensor(value);
             tensor && tensor->elements() == 1) {
    const auto read = [&](auto number) {
      file->read(*tensor, 0, std::as_writable_bytes(std::span(&number, 1)));
      real = static_cast<double>(number);
    };
    if (tensor->dtype == SafetensorsDType::kF32) read(0.0F);
    if (tensor->dtype == SafetensorsDType::kF64) read(0.0);
    if (tensor->dtype == SafetensorsDType::kI64) read(int64_t{0});
  }
  return real && std::isfinite(*real) ? real : std::nullopt;  // JSON has no infinities or NaN
}

// Converts a boolean, number, string or None to JSON; nullopt for containers.
std::optional<nlohmann::json> plain_option(PickleValue value) {
  if (value.is(PickleKind::kNone)) return nlohmann::json();
  if (value.is(PickleKind::kBool)) return value.boolean();
  if (value.is(PickleKind::kInt)) return value.integer();
  if (value.is(PickleKind::kFloat) && std::isfinite(value.real())) return value.real();
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> read_count(const TorchFile& file, PickleValue value) {
  const auto real = read_real(&file, value);
  return real ? count_of(*real) : std::nullopt;
}

void read_group_member(const TorchFile* file, std::string_view key, PickleValue value, ckpt::OptimizerGroup& group) {
  if (std::find(std::begin(kNoSettings), std::end(kNoSettings), key) != std::end(kNoSettings)) return;
  if (key == "betas") {
    const bool pair = value.is(PickleKind::kTuple) || value.is(PickleKind::kList);
    if (!pair || value.items().size() != 2) return;
    group.beta1 = read_real(file, value.items()[0]);
    group.beta2 = read_real(file, value.items()[1]);
    return;
  }
  bool known = false;
  ckpt::visit_settings([&](std::string_view name, auto member) {
    if (name != key) return;
    known = true;
    using Value = typename std::remove_reference_t<decltype(group.*member)>::value_type;
    if constexpr (std::is_same_v<Value, int64_t>) {
      const auto real = read_real(file, value);
      group.*member = real ? count_of(*real) : std::nullopt;
    } else {
      group.*member = read_real(file, value);
    }
  });
  if (known) return;
  if (auto option = plain_option(value)) group.options[std::string(key)] = std::move(*option);
}

ckpt::OptimizerGroup read_adam_group(const TorchFile* file, PickleValue group) {
  ckpt::OptimizerGroup made;
  for (const auto& [key, value] : group.pairs()) {
    if (key.is(PickleKind::kString)) read_group_member(file, key.text(), value, made);
  }
  return made;
}

}  // namespace ms::convert
