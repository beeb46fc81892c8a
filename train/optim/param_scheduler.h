// Learning rate and weight decay as functions of the samples that updates were made with
// (megatron/core/optimizer_param_scheduler.py): the one number that a run carries on. A skipped step does not move it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/config.h"

namespace ms::train {

// The schedule of a run, with all lengths in samples. Names as in Megatron's state_dict.
struct ParamSchedule {
  double init_lr = 0, max_lr = 0, min_lr = 0;
  double lr_warmup_steps = 0;  // a fraction of lr_decay_steps need not be whole
  int64_t lr_decay_steps = 0;
  std::string lr_decay_style;
  int64_t wsd_decay_steps = 0;
  std::string lr_wsd_decay_style;
  double start_wd = 0, end_wd = 0;
  int64_t wd_incr_steps = 0;
  std::string wd_incr_style;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ParamSchedule;
    field("max_lr", &C::max_lr, "--lr");
    field("min_lr", &C::min_lr, "--min-lr");
    field("init_lr", &C::init_lr, "--lr-warmup-init");
    field("lr_warmup_steps", &C::lr_warmup_steps, "the warm-up in samples");
    field("lr_decay_steps", &C::lr_decay_steps, "the length of the decay in samples");
    field("lr_decay_style", &C::lr_decay_style, "--lr-decay-style");
    field("wsd_decay_steps", &C::wsd_decay_steps, "the annealing phase in samples");
    field("lr_wsd_decay_style", &C::lr_wsd_decay_style, "--lr-wsd-decay-style");
    field("start_wd", &C::start_wd, "the initial weight decay");
    field("end_wd", &C::end_wd, "the final weight decay");
    field("wd_incr_steps", &C::wd_incr_steps, "the length of the weight decay's increase in samples");
    field("wd_incr_style", &C::wd_incr_style, "--weight-decay-incr-style");
  }
};

// What the flags say. config: resolved and validated.
ParamSchedule param_schedule(const TrainerConfig& config);

// num_steps: samples of the updates done before this one (0 for the first, which with warm-up has init_lr).
// Warm-up is linear from init_lr to max_lr. Then constant; or from max_lr at its end to min_lr at lr_decay_steps,
// linear or as half a cosine; or max_lr * sqrt(warm-up / num_steps), at least min_lr, until lr_decay_steps; or WSD:
// constant until wsd_decay_steps before the end, then by lr_wsd_decay_style.
double learning_rate(const ParamSchedule& schedule, int64_t num_steps);
// start_wd to end_wd over wd_incr_steps.
double weight_decay(const ParamSchedule& schedule, int64_t num_steps);

nlohmann::json schedule_to_json(const ParamSchedule& schedule);
// The schedule of a continued run. saved: what schedule_to_json wrote; fields that it lacks are as given. Where the two
// differ in a way that changes a rate: use_checkpoint takes the saved value, override the given one, and with neither
// it is kInvalidArgument, as in Megatron: a schedule that moves under a run is seldom meant.
ParamSchedule continue_schedule(const ParamSchedule& given, const nlohmann::json& saved, bool override_saved,
                                bool use_checkpoint);

}  // namespace ms::train
