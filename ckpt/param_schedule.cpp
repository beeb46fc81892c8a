#include "ckpt/param_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "core/io/json.h"

namespace ms::ckpt {
namespace {

double half_cosine(double ratio) { return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0); }

// The fraction of max_lr - min_lr that remains after `ratio` of WSD's annealing phase.
double wsd_share(const std::string& style, double ratio) {
  if (style == "linear") return 1.0 - ratio;
  if (style == "cosine") return half_cosine(ratio);
  if (style == "minus_sqrt") return 1.0 - std::sqrt(ratio);
  return 2.0 * std::pow(0.5, ratio) - 1.0;  // exponential
}

}  // namespace

double learning_rate(const ParamSchedule& schedule, int64_t num_steps) {
  const auto step = static_cast<double>(num_steps);
  const double warmup = schedule.lr_warmup_steps;
  if (warmup > 0 && step <= warmup) {
    return schedule.init_lr + (schedule.max_lr - schedule.init_lr) * step / warmup;
  }
  if (schedule.lr_decay_style == "constant") return schedule.max_lr;
  if (num_steps > schedule.lr_decay_steps) return schedule.min_lr;
  if (schedule.lr_decay_style == "inverse-square-root") {
    const double rate = schedule.max_lr * std::sqrt(std::max(warmup, 1.0)) / std::sqrt(std::max(step, 1.0));
    return std::max(schedule.min_lr, rate);
  }
  double share = 1.0;
  if (schedule.lr_decay_style == "WSD") {
    const int64_t begin = schedule.lr_decay_steps - schedule.wsd_decay_steps;
    if (num_steps > begin) {
      share = wsd_share(schedule.lr_wsd_decay_style,
                        static_cast<double>(num_steps - begin) / static_cast<double>(schedule.wsd_decay_steps));
    }
  } else {
    const double ratio = (step - warmup) / (static_cast<double>(schedule.lr_decay_steps) - warmup);
    share = schedule.lr_decay_style == "linear" ? 1.0 - ratio : half_cosine(ratio);
  }
  return schedule.min_lr + share * (schedule.max_lr - schedule.min_lr);
}

double weight_decay(const ParamSchedule& schedule, int64_t num_steps) {
  if (num_steps > schedule.wd_incr_steps || schedule.wd_incr_style == "constant") return schedule.end_wd;
  const double ratio = static_cast<double>(num_steps) / static_cast<double>(schedule.wd_incr_steps);
  const double share = schedule.wd_incr_style == "linear" ? ratio : half_cosine(1.0 - ratio);
  return schedule.start_wd + share * (schedule.end_wd - schedule.start_wd);
}

std::optional<ParamSchedule> decoupled_schedule(const ParamSchedule& schedule) {
  if (!schedule.decoupled_lr || !schedule.decoupled_min_lr) return std::nullopt;
  ParamSchedule decoupled = schedule;
  decoupled.max_lr = *schedule.decoupled_lr;
  decoupled.min_lr = *schedule.decoupled_min_lr;
  return decoupled;
}

nlohmann::json schedule_to_json(const ParamSchedule& schedule) {
  nlohmann::json json;
  ParamSchedule::fields([&](const char* name, auto member, const char*) { json[name] = schedule.*member; });
  if (decoupled_schedule(schedule)) {
    json["decoupled_lr"] = *schedule.decoupled_lr;
    json["decoupled_min_lr"] = *schedule.decoupled_min_lr;
  }
  return json;
}

std::optional<ParamSchedule> schedule_from_json(const nlohmann::json& json) {
  if (!json.is_object()) return std::nullopt;
  // Without these the rate is unknown; Megatron saves no other fields that it depends on.
  for (const char* key : {"max_lr", "min_lr", "lr_warmup_steps", "lr_decay_steps", "lr_decay_style"}) {
    if (!json.contains(key) || json.at(key).is_null()) return std::nullopt;
  }
  ParamSchedule schedule;
  schedule.wd_incr_style = "constant";
  ParamSchedule::fields([&](const char* name, auto member, const char*) {
    using Value = std::remove_reference_t<decltype(schedule.*member)>;
    const auto found = json.find(name);
    if (found == json.end() || found->is_null()) return;
    const bool fits = std::is_same_v<Value, std::string> ? found->is_string() : found->is_number();
    if (!fits) {
      throw core::Error(core::ErrorCode::kCorruptData,
                        core::cat("opt_param_scheduler in the checkpoint: ", name, " is ", found->dump()));
    }
    if constexpr (std::is_same_v<Value, int64_t>) {
      // A Megatron run with fractional settings stores sample counts as floats.
      const double real = found->template get<double>();
      if (!(real >= 0 && real < 9e18)) {
        throw core::Error(core::ErrorCode::kCorruptData,
                          core::cat("opt_param_scheduler in the checkpoint: ", name, " is ", found->dump()));
      }
      schedule.*member = found->is_number_integer() ? found->template get<int64_t>() : std::llround(real);
    } else {
      schedule.*member = found->template get<Value>();
    }
  });
  for (const auto& [name, bound] :
       {std::pair("decoupled_lr", &schedule.decoupled_lr), std::pair("decoupled_min_lr", &schedule.decoupled_min_lr)}) {
    const auto found = json.find(name);
    if (found == json.end() || found->is_null()) continue;
    if (!found->is_number()) {
      throw core::Error(core::ErrorCode::kCorruptData,
                        core::cat("opt_param_scheduler in the checkpoint: ", name, " is ", found->dump()));
    }
    *bound = found->get<double>();
  }
  const bool annealed = schedule.lr_decay_style == "WSD" && schedule.wsd_decay_steps <= 0;
  return annealed ? std::nullopt : std::optional(schedule);
}

}  // namespace ms::ckpt
