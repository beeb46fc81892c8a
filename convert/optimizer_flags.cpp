#include "convert/optimizer_flags.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "ckpt/optimizer_settings.h"
#include "ckpt/param_schedule.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/printable.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

constexpr std::array<std::string_view, 4> kStyles = {"constant", "linear", "cosine", "inverse-square-root"};

// "--adam-beta1".
std::string flag_of(std::string field) {
  std::replace(field.begin(), field.end(), '_', '-');
  return "--" + field;
}

class WithSettings final : public ckpt::Source {
 public:
  WithSettings(std::unique_ptr<ckpt::Source> source, ckpt::CheckpointInfo info)
      : source_(std::move(source)), info_(std::move(info)) {}
  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return source_->shards(); }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    source_->read(shard, offset, extent, out);
  }
  void read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                 const core::Dims& out_shape, const core::Dims& out_offset) override {
    source_->read_into(shard, offset, extent, out, out_shape, out_offset);
  }
  bool expect_stream(int64_t cache_bytes, int threads) override { return source_->expect_stream(cache_bytes, threads); }
  void begin_one_pass() override { source_->begin_one_pass(); }
  void end_one_pass(bool all) override { source_->end_one_pass(all); }
  int64_t scratch_bytes() const override { return source_->scratch_bytes(); }
  std::string describe(int32_t shard) const override { return source_->describe(shard); }
  std::vector<ckpt::Leftover> leftovers() const override { return source_->leftovers(); }
  std::optional<uint64_t> logical_xxh3(const std::string& key, core::TensorRole role) const override {
    return source_->logical_xxh3(key, role);
  }

 private:
  std::unique_ptr<ckpt::Source> source_;
  ckpt::CheckpointInfo info_;
};

class Settings {
 public:
  Settings(const ckpt::Source& source, const OptimizerFlags& flags, std::vector<std::string>& decisions,
           std::vector<std::string>& from_flags)
      : flags_(flags), decisions_(decisions), from_flags_(from_flags), info_(source.info()) {
    groups_ = ckpt::optimizer_groups(source);
    if (groups_.empty()) groups_.emplace_back();
  }

  ckpt::CheckpointInfo apply() && {
    set("adam_beta1", flags_.adam_beta1, &ckpt::OptimizerGroup::beta1);
    set("adam_beta2", flags_.adam_beta2, &ckpt::OptimizerGroup::beta2);
    set("adam_eps", flags_.adam_eps, &ckpt::OptimizerGroup::eps);
    set("weight_decay", flags_.weight_decay, &ckpt::OptimizerGroup::weight_decay,
        [](const ckpt::OptimizerGroup& group) { return group.weight_decay != 0.0; });
    const json saved = info_.common.value("opt_param_scheduler", json());
    const bool begun = flags_.min_lr || flags_.lr_decay_style || flags_.lr_decay_iters || flags_.lr_warmup_iters ||
                       flags_.lr_warmup_init;
    const auto stated = ckpt::schedule_from_json(saved);
    if (begun || (stated && (flags_.lr || flags_.weight_decay))) {
      set_schedule(stated, saved);
    } else {
      set("lr", flags_.lr, &ckpt::OptimizerGroup::lr);
      if (flags_.lr) {  // the rate is the flag's now, not one that a scheduler changed
        for (ckpt::OptimizerGroup& group : groups_) group.initial_lr = group.max_lr = group.min_lr = std::nullopt;
        info_.common.erase("lr_scheduler");
      }
    }
    ckpt::set_optimizer_groups(info_.common, std::move(groups_), /*complete=*/false);
    return std::move(info_);
  }

 private:
  void say(const std::string& field, const std::string& value, const std::optional<std::string>& replaced) {
    decisions_.push_back(replaced ? cat(flag_of(field), " ", value, " replaces the source's ", *replaced)
                                  : cat(field, " is ", value, " by ", flag_of(field), "; the source has none"));
    from_flags_.push_back(cat(flag_of(field), " ", value, ": an optimizer setting"));
  }

  void set(
      const std::string& field, const std::optional<double>& value, std::optional<double> ckpt::OptimizerGroup::*member,
      const std::function<bool(const ckpt::OptimizerGroup&)>& applies = [](const auto&) { return true; }) {
    if (!value) return;
    std::optional<std::string> replaced;
    bool changed = false;
    for (ckpt::OptimizerGroup& group : groups_) {
      if (!applies(group) || group.*member == value) continue;
      if (group.*member) replaced = cat(*(group.*member));
      group.*member = value;
      changed = true;
    }
    if (changed) say(field, cat(*value), replaced);
  }

  // Samples per iteration.
  int64_t batch_size() const {
    if (flags_.global_batch_size) return *flags_.global_batch_size;
    const json config = info_.common.value("config", json::object());
    const json training = config.is_object() ? config.value("training", json::object()) : json();
    const json stated = training.is_object() ? training.value("global_batch_size", json()) : json();
    if (stated.is_number_integer() && stated.get<int64_t>() > 0) return stated.get<int64_t>();
    const int64_t samples = consumed(), steps = steps_done();
    if (samples > 0 && steps > 0 && samples % steps == 0) return samples / steps;
    throw Error(ErrorCode::kInvalidArgument,
                "the learning rate schedule counts samples, and the source lacks the number of samples per "
                "iteration; give --global-batch-size");
  }
  int64_t consumed() const {
    const json samples = info_.common.value("consumed_train_samples", json());
    return samples.is_number_integer() ? std::max<int64_t>(0, samples.get<int64_t>()) : 0;
  }
  int64_t steps_done() const { return groups_[0].step.value_or(info_.iteration); }

  void set_schedule(const std::optional<ckpt::ParamSchedule>& stated, const json& saved) {
    ckpt::ParamSchedule schedule = stated.value_or(ckpt::ParamSchedule());
    if (!stated) {
      schedule.lr_decay_style = "constant";
      schedule.wd_incr_style = "constant";
      const std::optional<double> lr = flags_.lr ? flags_.lr : groups_[0].lr;
      if (!lr) {
        throw Error(ErrorCode::kInvalidArgument,
                    "a schedule needs a learning rate, and the source has none: give --lr");
      }
      schedule.max_lr = schedule.min_lr = *lr;
      schedule.start_wd = schedule.end_wd = groups_[0].weight_decay.value_or(0);
    }
    const auto take = [&](const char* field, const auto& value, auto& member, const auto& made) {
      if (!value) return;
      if (stated && member == made) return;
      say(field, cat(*value), stated ? std::optional(cat(member)) : std::nullopt);
      member = made;
    };
    take("lr", flags_.lr, schedule.max_lr, flags_.lr.value_or(0));
    take("min_lr", flags_.min_lr, schedule.min_lr, flags_.min_lr.value_or(0));
    take("lr_warmup_init", flags_.lr_warmup_init, schedule.init_lr, flags_.lr_warmup_init.value_or(0));
    take("lr_decay_style", flags_.lr_decay_style, schedule.lr_decay_style, flags_.lr_decay_style.value_or(""));
    if (flags_.lr_decay_iters) {
      take("lr_decay_iters", flags_.lr_decay_iters, schedule.lr_decay_steps, *flags_.lr_decay_iters * batch_size());
    }
    if (flags_.lr_warmup_iters) {
      take("lr_warmup_iters", flags_.lr_warmup_iters, schedule.lr_warmup_steps,
           static_cast<double>(*flags_.lr_warmup_iters * batch_size()));
    }
    if (flags_.weight_decay) {
      schedule.start_wd = schedule.end_wd = *flags_.weight_decay;
      schedule.wd_incr_style = "constant";
    }
    const bool decays = schedule.lr_decay_style != "constant";
    if (decays && !stated && (!flags_.min_lr || !flags_.lr_decay_iters)) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--lr-decay-style ", schedule.lr_decay_style, " needs its end: --min-lr and --lr-decay-iters"));
    }
    int64_t num_steps = consumed();
    if (saved.is_object() && saved.contains("num_steps") && saved["num_steps"].is_number()) {
      num_steps = saved["num_steps"].get<int64_t>();
    } else if (num_steps == 0 && steps_done() > 0) {
      num_steps = steps_done() * batch_size();
    }
    if (!decays) {
      schedule.min_lr = stated || flags_.min_lr ? schedule.min_lr : schedule.max_lr;
      const auto warmed = static_cast<int64_t>(schedule.lr_warmup_steps) + 1;
      schedule.lr_decay_steps = std::max({schedule.lr_decay_steps, num_steps, warmed});
    }
    if (schedule.wd_incr_steps == 0) schedule.wd_incr_steps = schedule.lr_decay_steps;
    if (schedule.lr_warmup_steps >= static_cast<double>(schedule.lr_decay_steps) || schedule.min_lr > schedule.max_lr) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("the schedule warms up over ", schedule.lr_warmup_steps, " samples and ends at ",
                      schedule.lr_decay_steps, ", from --lr ", schedule.max_lr, " to --min-lr ", schedule.min_lr,
                      ": --lr-warmup-iters must be less than --lr-decay-iters, and --min-lr not above --lr"));
    }
    json& made = info_.common["opt_param_scheduler"] = ckpt::schedule_to_json(schedule);
    made["num_steps"] = num_steps;
    info_.common.erase("lr_scheduler");
    // Weight decay alone does not change the rates.
    const bool rates = flags_.lr || flags_.min_lr || flags_.lr_decay_style || flags_.lr_decay_iters ||
                       flags_.lr_warmup_iters || flags_.lr_warmup_init;
    const auto decoupled = ckpt::decoupled_schedule(schedule);
    for (ckpt::OptimizerGroup& group : groups_) {
      if (!rates) break;
      const bool is_decoupled = decoupled && !group.params.empty() && ckpt::is_embedding_or_output(group.params[0]);
      const ckpt::ParamSchedule& of_group = is_decoupled ? *decoupled : schedule;
      group.lr = ckpt::learning_rate(of_group, num_steps);
      group.max_lr = of_group.max_lr;
      group.min_lr = of_group.min_lr;
      group.initial_lr.reset();
    }
  }

  const OptimizerFlags& flags_;
  std::vector<std::string>& decisions_;
  std::vector<std::string>& from_flags_;
  ckpt::CheckpointInfo info_;
  std::vector<ckpt::OptimizerGroup> groups_;
};

}  // namespace

bool OptimizerFlags::any() const {
  bool given = false;
  fields([&](const char*, auto member, const char*) { given = given || (this->*member).has_value(); });
  return given;
}

void OptimizerFlags::validate() const {
  const auto require = [](bool holds, const auto&... parts) {
    if (!holds) throw Error(ErrorCode::kInvalidArgument, cat(parts...));
  };
  for (const auto& [flag, value] :
       {std::pair("--lr", lr), std::pair("--min-lr", min_lr), std::pair("--weight-decay", weight_decay),
        std::pair("--adam-eps", adam_eps), std::pair("--lr-warmup-init", lr_warmup_init)}) {
    require(!value || (*value >= 0 && *value < 1e6), flag, " ", value.value_or(0), ": expected a number of at least 0");
  }
  for (const auto& [flag, value] : {std::pair("--adam-beta1", adam_beta1), std::pair("--adam-beta2", adam_beta2)}) {
    require(!value || (*value >= 0 && *value < 1), flag, " ", value.value_or(0),
            ": expected a number of at least 0 and below 1");
  }
  for (const auto& [flag, value] :
       {std::pair("--lr-decay-iters", lr_decay_iters), std::pair("--global-batch-size", global_batch_size)}) {
    require(!value || (*value > 0 && *value < int64_t{1} << 30), flag, " ", value.value_or(0),
            ": expected a whole number from 1 to 2^30");
  }
  require(!lr_warmup_iters || (*lr_warmup_iters >= 0 && *lr_warmup_iters < int64_t{1} << 30), "--lr-warmup-iters ",
          lr_warmup_iters.value_or(0), ": expected a whole number from 0 to 2^30");
  require(!lr_decay_style || std::find(kStyles.begin(), kStyles.end(), *lr_decay_style) != kStyles.end(),
          "--lr-decay-style ", core::shown_value(lr_decay_style.value_or("")),
          ": expected constant, linear, cosine or inverse-square-root");
}

std::unique_ptr<ckpt::Source> with_optimizer_flags(std::unique_ptr<ckpt::Source> source, const OptimizerFlags& flags,
                                                   std::vector<std::string>& decisions,
                                                   std::vector<std::string>& from_flags) {
  flags.validate();
  if (!flags.any() || !ckpt::has_role(*source, core::TensorRole::kExpAvg)) return source;
  ckpt::CheckpointInfo info = Settings(*source, flags, decisions, from_flags).apply();
  return std::make_unique<WithSettings>(std::move(source), std::move(info));
}

}  // namespace ms::convert
