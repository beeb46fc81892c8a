#include "train/optim/param_scheduler.h"

#include <type_traits>

#include "core/error.h"
#include "core/io/json.h"

namespace ms::train {
namespace {

// Whether the field has a say under this schedule: the end of a decay that does not decay has none.
bool matters(const ParamSchedule& schedule, std::string_view field) {
  if (field == "lr_decay_steps" || field == "min_lr" || field == "decoupled_min_lr")
    return schedule.lr_decay_style != "constant";
  if (field == "init_lr") return schedule.lr_warmup_steps > 0;
  if (field == "wsd_decay_steps" || field == "lr_wsd_decay_style") return schedule.lr_decay_style == "WSD";
  if (field == "wd_incr_steps") return schedule.wd_incr_style != "constant";
  return true;
}

// A field of a schedule that a checkpoint holds. Throws kCorruptData.
template <class Value>
Value saved_value(const nlohmann::json& saved, const char* name) {
  constexpr std::string_view kWhere = "opt_param_scheduler in the checkpoint";
  if constexpr (std::is_same_v<Value, std::string>) {
    return core::json_string(saved, name, kWhere);
  } else if constexpr (std::is_same_v<Value, int64_t>) {
    return core::json_count(saved, name, kWhere);
  } else {
    const nlohmann::json& value = core::json_member(saved, name, kWhere);
    if (value.is_number()) return value.get<Value>();
    throw core::Error(core::ErrorCode::kCorruptData, core::cat(kWhere, ": ", name, " is ", value.dump()));
  }
}

core::Error differs(const char* what, const std::string& given, const std::string& saved) {
  return {core::ErrorCode::kInvalidArgument,
          core::cat(what, " is ", given, " but the checkpoint's run had ", saved,
                    ". Give the same, or say whose counts: --override-opt_param-scheduler (the command line's) or "
                    "--use-checkpoint-opt_param-scheduler")};
}

}  // namespace

ParamSchedule param_schedule(const TrainerConfig& config) {
  const SchedulerConfig& scheduler = config.scheduler;
  const OptimizerConfig& optimizer = config.optimizer;
  const int64_t batch = config.training.global_batch_size;
  const bool by_samples = config.training.train_samples > 0;
  ParamSchedule schedule;
  schedule.init_lr = scheduler.lr_warmup_init;
  schedule.max_lr = optimizer.lr;
  schedule.min_lr = optimizer.min_lr;
  schedule.lr_decay_steps = by_samples ? scheduler.lr_decay_samples : scheduler.lr_decay_iters * batch;
  schedule.lr_warmup_steps =
      static_cast<double>(by_samples ? scheduler.lr_warmup_samples : scheduler.lr_warmup_iters * batch);
  if (scheduler.lr_warmup_fraction > 0) {
    schedule.lr_warmup_steps = scheduler.lr_warmup_fraction * static_cast<double>(schedule.lr_decay_steps);
  }
  schedule.lr_decay_style = scheduler.lr_decay_style;
  schedule.wsd_decay_steps = by_samples ? scheduler.lr_wsd_decay_samples : scheduler.lr_wsd_decay_iters * batch;
  schedule.lr_wsd_decay_style = scheduler.lr_wsd_decay_style;
  schedule.start_wd = optimizer.start_weight_decay.value_or(optimizer.weight_decay);
  schedule.end_wd = optimizer.end_weight_decay.value_or(optimizer.weight_decay);
  schedule.wd_incr_steps = by_samples ? config.training.train_samples : config.training.train_iters * batch;
  schedule.wd_incr_style = optimizer.weight_decay_incr_style;
  if (optimizer.decoupled_lr) {
    schedule.decoupled_lr = optimizer.decoupled_lr;
    schedule.decoupled_min_lr = optimizer.decoupled_min_lr.value_or(optimizer.min_lr);
  }
  return schedule;
}

ParamSchedule continue_schedule(const ParamSchedule& given, const nlohmann::json& saved, bool override_saved,
                                bool use_checkpoint) {
  ParamSchedule schedule = given;
  if (override_saved || !saved.is_object()) return schedule;
  ParamSchedule::fields([&](const char* name, auto member, const char* what) {
    using Value = std::remove_reference_t<decltype(schedule.*member)>;
    if (!saved.contains(name)) return;
    const Value value = saved_value<Value>(saved, name);
    if (value == given.*member) return;
    if (!use_checkpoint && matters(given, name)) throw differs(what, core::cat(given.*member), core::cat(value));
    if (use_checkpoint) schedule.*member = value;
  });
  // Megatron saves neither these nor init_lr, so that without it nothing is known of them.
  if (!saved.contains("init_lr")) return schedule;
  const auto continue_bound = [&](const char* name, const char* flag, std::optional<double> ParamSchedule::*bound) {
    std::optional<double> value;
    if (saved.contains(name)) value = saved_value<double>(saved, name);
    if (value == given.*bound) return;
    const auto text = [](const std::optional<double>& rate) {
      return rate ? core::cat(*rate) : std::string("not given");
    };
    if (!use_checkpoint && matters(given, name)) throw differs(flag, text(given.*bound), text(value));
    if (use_checkpoint) schedule.*bound = value;
  };
  continue_bound("decoupled_lr", "--decoupled-lr", &ParamSchedule::decoupled_lr);
  continue_bound("decoupled_min_lr", "--decoupled-min-lr", &ParamSchedule::decoupled_min_lr);
  return schedule;
}

}  // namespace ms::train
