#include "train/deepspeed_scheduler.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "core/flag_syntax.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

// DeepSpeed's defaults.
constexpr double kWarmupMaxLr = 1e-3, kCosMinRatio = 1e-4;
constexpr int64_t kWarmupSteps = 1000;

class SchedulerTranslator {
 public:
  SchedulerTranslator(const json& params, std::string_view type, std::string_view where)
      : params_(params), type_(type), where_(where) {}

  std::vector<DeepspeedSetting> translate(std::optional<double> lr) {
    require_known();
    const bool is_cosine = type_ == "WarmupCosineLR", decays = type_ != "WarmupLR";
    add_warmup();
    if (decays) {
      if (!params_.contains("total_num_steps")) fail(ErrorCode::kInvalidArgument, cat(type_, " needs total_num_steps"));
      const json total = given("total_num_steps", nullptr);
      if (!total.is_null()) add("total_num_steps", total, "lr_decay_iters", count("total_num_steps", total));
    }
    add("type", type_, "lr_decay_style", is_cosine ? "cosine" : decays ? "linear" : "constant");
    if (is_cosine) {
      add_share("warmup_min_ratio", "lr_warmup_init", 0, lr);
      add_share("cos_min_ratio", "min_lr", kCosMinRatio, lr);
    } else {
      add_number("warmup_min_lr", "lr_warmup_init", 0);
      add_number("warmup_max_lr", "lr", kWarmupMaxLr);
      if (decays) add_number("warmup_min_lr", "min_lr", 0);
    }
    return std::move(settings_);
  }

 private:
  [[noreturn]] void fail(ErrorCode code, const std::string& what) const {
    throw Error(code, cat(where_, ": scheduler: ", what));
  }
  // null: left to the command line.
  json given(const char* name, const json& otherwise) const {
    const auto found = params_.find(name);
    if (found == params_.end()) return otherwise;
    return *found == "auto" ? json() : *found;
  }
  void add(const char* name, const json& stands_as, const char* field, const json& value) {
    const bool is_type = std::string_view(name) == "type";
    settings_.push_back({.key = cat(is_type ? "scheduler." : "scheduler.params.", name),
                         .given = stands_as,
                         .is_default = !is_type && !params_.contains(name),
                         .field = field,
                         .value = value});
  }
  double number(const char* name, const json& value) const {
    if (!value.is_number() || value.get<double>() < 0)
      fail(ErrorCode::kInvalidArgument, cat("params.", name, " is ", value.dump(), "; expected a number, at least 0"));
    return value.get<double>();
  }
  void add_number(const char* name, const char* field, double otherwise) {
    const json value = given(name, otherwise);
    if (!value.is_null()) add(name, value, field, number(name, value));
  }
  void add_share(const char* name, const char* field, double otherwise, std::optional<double> lr) {
    const json value = given(name, otherwise);
    if (value.is_null()) return;
    const double share = number(name, value);
    if (share == 0) return add(name, value, field, 0.0);
    if (!lr)
      fail(ErrorCode::kInvalidArgument, cat("params.", name, " is a share of optimizer.params.lr, which is not given"));
    add(name, value, field, share * *lr);
  }
  int64_t count(const char* name, const json& value) const {
    const double steps = number(name, value);
    if (steps != std::floor(steps) || steps >= 9e15)
      fail(ErrorCode::kInvalidArgument, cat("params.", name, " is ", value.dump(), "; expected a number of steps"));
    return static_cast<int64_t>(steps);
  }
  void add_warmup() {
    constexpr const char* kName = "warmup_num_steps";
    constexpr int64_t kLeast = 2;  // for DeepSpeed, whatever is given
    const json value = given(kName, kWarmupSteps), type = given("warmup_type", "log");
    const int64_t steps = value.is_null() ? 0 : std::max(kLeast, count(kName, value));
    if (!type.is_null() && type != "linear" && type != "log")
      fail(ErrorCode::kInvalidArgument, cat("params.warmup_type is ", type.dump(), "; expected \"linear\""));
    const bool is_one_step = type == "log" && steps == kLeast && type_ == "WarmupLR";  // 0, then all
    if (type == "log" && !is_one_step)
      fail(ErrorCode::kUnsupported,
           cat("params.warmup_type ", params_.contains("warmup_type") ? "" : "is not given, and DeepSpeed's default ",
               "\"log\" is not supported: give \"linear\""));
    if (!value.is_null()) add(kName, value, "lr_warmup_iters", is_one_step ? 1 : steps);
  }

  void require_known() const {
    const bool is_cosine = type_ == "WarmupCosineLR";
    std::vector<std::string> names = {"warmup_num_steps", "warmup_type", "last_batch_iteration"};
    for (const char* name : {"warmup_min_ratio", "cos_min_ratio"}) {
      if (is_cosine) names.emplace_back(name);
    }
    for (const char* name : {"warmup_min_lr", "warmup_max_lr"}) {
      if (!is_cosine) names.emplace_back(name);
    }
    if (type_ != "WarmupLR") names.emplace_back("total_num_steps");
    for (const auto& item : params_.items()) {
      if (std::ranges::find(names, item.key()) != names.end()) continue;
      const std::string near = core::nearest_word(item.key(), names);
      fail(ErrorCode::kInvalidArgument,
           cat(type_, " has no params.", item.key(), near.empty() ? "" : cat(". Did you mean ", near, "?")));
    }
    if (const json last = given("last_batch_iteration", -1); !last.is_null() && last != -1)
      fail(ErrorCode::kUnsupported, cat("params.last_batch_iteration ", last.dump(),
                                        " is not supported: a run that continues has its checkpoint's"));
  }

  const json& params_;
  std::string type_;
  std::string_view where_;
  std::vector<DeepspeedSetting> settings_;
};

}  // namespace

std::vector<DeepspeedSetting> settings_of_deepspeed_scheduler(const json& scheduler, std::optional<double> lr,
                                                              std::string_view where) {
  const auto fail = [&](ErrorCode code, const std::string& what) { throw Error(code, cat(where, ": ", what)); };
  const json type = scheduler.value("type", json()), params = scheduler.value("params", json::object());
  for (const auto& item : scheduler.items()) {
    if (item.key() != "type" && item.key() != "params")
      fail(ErrorCode::kInvalidArgument, cat("unknown key \"scheduler.", item.key(), "\""));
  }
  if (!params.is_object())
    fail(ErrorCode::kInvalidArgument, cat("scheduler.params is ", params.dump(), "; expected an object"));
  if (type != "WarmupLR" && type != "WarmupDecayLR" && type != "WarmupCosineLR")
    fail(type.is_string() ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
         cat("scheduler.type is ", type.dump(), "; expected WarmupLR, WarmupDecayLR or WarmupCosineLR"));
  if (!params.empty() && std::ranges::all_of(params, [](const json& of) { return of == "auto"; })) return {};
  return SchedulerTranslator(params, type.get<std::string>(), where).translate(lr);
}

}  // namespace ms::train
