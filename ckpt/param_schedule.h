// Learning rate and weight decay as functions of the consumed samples (megatron/core/optimizer_param_scheduler.py).
// mstrain uses it for every update; conversions store and compare it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace ms::ckpt {

// The schedule of a run, with all lengths in samples. Names as in Megatron's state_dict.
struct ParamSchedule {
  double init_lr = 0, max_lr = 0, min_lr = 0;
  double lr_warmup_steps = 0;  // a double: a fraction of lr_decay_steps need not be whole
  int64_t lr_decay_steps = 0;
  std::string lr_decay_style;
  int64_t wsd_decay_steps = 0;
  std::string lr_wsd_decay_style;
  double start_wd = 0, end_wd = 0;
  int64_t wd_incr_steps = 0;
  std::string wd_incr_style;
  // Bounds in place of max_lr and min_lr for word embeddings and output layer (--decoupled-lr); both or neither.
  std::optional<double> decoupled_lr, decoupled_min_lr;

  template <class Visitor>
  static void fields(Visitor&& field) {  // without the decoupled bounds
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

// num_steps: samples consumed before this update (0 for the first one, which with warm-up uses init_lr).
// Warm-up is linear from init_lr to max_lr. After it, one of: constant; from max_lr down to min_lr at lr_decay_steps,
// linear or half a cosine; max_lr * sqrt(warm-up / num_steps), at least min_lr, until lr_decay_steps; WSD, which is
// constant until wsd_decay_steps before the end, then follows lr_wsd_decay_style.
double learning_rate(const ParamSchedule& schedule, int64_t num_steps);
// start_wd to end_wd over wd_incr_steps.
double weight_decay(const ParamSchedule& schedule, int64_t num_steps);

// The schedule of word embeddings and output layer, where they have their own bounds.
std::optional<ParamSchedule> decoupled_schedule(const ParamSchedule& schedule);

// All fields, decoupled bounds if any: CheckpointInfo::common["opt_param_scheduler"], which also contains num_steps.
nlohmann::json schedule_to_json(const ParamSchedule& schedule);
// Inverse of schedule_to_json. nullopt if json is not an object or lacks a field that the rate depends on (Megatron
// does not save init_lr: 0). Throws kCorruptData for a field of another type.
std::optional<ParamSchedule> schedule_from_json(const nlohmann::json& json);

}  // namespace ms::ckpt
