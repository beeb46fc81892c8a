#include "train/deepspeed_config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/flag_syntax.h"
#include "train/deepspeed_scheduler.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

// Keys whose value is that of a field here.
struct SameField {
  std::string_view section, key;
  const char* field;
  bool is_count = false;  // else any number
};
constexpr SameField kSameFields[] = {
    {"", "train_batch_size", "global_batch_size", true},
    {"", "train_micro_batch_size_per_gpu", "micro_batch_size", true},
    {"", "gradient_accumulation_steps", "gradient_accumulation_steps", true},
    {"", "gradient_clipping", "clip_grad"},
    {"", "steps_per_print", "log_interval", true},
    {"fp16", "loss_scale_window", "loss_scale_window", true},
    {"fp16", "hysteresis", "hysteresis", true},
    {"fp16", "min_loss_scale", "min_loss_scale"},
    {"optimizer.params", "lr", "lr"},
    {"optimizer.params", "eps", "adam_eps"},
    {"optimizer.params", "weight_decay", "weight_decay"},
    {"optimizer.params", "momentum", "sgd_momentum"},
};

// Keys that change nothing here: with these values (separated by |; empty: all), and why. Other values are refused.
struct WithoutEffect {
  std::string_view section, key, values, why;
};
constexpr std::string_view kOneBuffer = "gradients are in one buffer, of which each message is a part";
constexpr std::string_view kUnitsAtOnce =
    "--use-megatron-fsdp reduces and gathers a layer at once, and the next one meanwhile";
constexpr std::string_view kOnHost = "model and optimizer are in the memory of the host already";
constexpr WithoutEffect kWithoutEffect[] = {
    {"", "wall_clock_breakdown", "", "--timing-log-level is the flag for times"},
    {"", "memory_breakdown", "", "--print-plan and the log have the memory"},
    {"", "dump_state", "", "--print-config prints the configuration"},
    {"", "prescale_gradients", "false", "gradients are divided once, in the loss"},
    {"", "gradient_predivide_factor", "1|1.0", "gradients are divided once, in the loss"},
    {"", "sparse_gradients", "false", "gradients are dense"},
    {"", "disable_allgather", "false", "weights are gathered"},
    {"", "zero_allow_untested_optimizer", "", "every optimizer here is tested with ZeRO"},
    {"", "zero_force_ds_cpu_optimizer", "", "every optimizer here runs on the host"},
    {"", "graph_harvesting", "false", "there are no graphs"},
    {"", "aio", "", "nothing is offloaded to files"},
    {"fp16", "auto_cast", "false", "inputs are tokens"},
    {"fp16", "consecutive_hysteresis", "false", "hysteresis is not refilled by each good step"},
    {"bf16", "immediate_grad_update", "", "gradients are added to fp32 ones at once"},
    {"data_types", "grad_accum_dtype", "null|\"fp32\"", "gradients are added up in fp32"},
    {"zero_optimization", "contiguous_gradients", "", kOneBuffer},
    {"zero_optimization", "reduce_scatter", "true", "from stage 1 on gradients are reduce-scattered"},
    {"zero_optimization", "allgather_partitions", "", "weights are gathered, not broadcast"},
    {"zero_optimization", "use_multi_rank_bucket_allreduce", "", kOneBuffer},
    {"zero_optimization", "round_robin_gradients", "", kOneBuffer},
    {"zero_optimization", "sub_group_size", "", kOnHost},
    {"zero_optimization", "ignore_unused_parameters", "", "every parameter that trains has a gradient"},
    {"zero_optimization", "load_from_fp32_weights", "true", "checkpoints have the master weights"},
    {"zero_optimization", "elastic_checkpoint", "", "checkpoints are read by any number of ranks"},
    {"zero_optimization", "legacy_stage1", "false", "there is one stage 1"},
    {"zero_optimization", "memory_efficient_linear", "", "always so"},
    {"zero_optimization", "module_granularity_threshold", "0", kUnitsAtOnce},
    {"zero_optimization", "stage3_prefetch_bucket_size", "", kUnitsAtOnce},
    {"zero_optimization", "stage3_param_persistence_threshold", "",
     "small parameters are gathered with the rest of their layer, in one message"},
    {"zero_optimization", "stage3_model_persistence_threshold", "",
     "small parameters are gathered with the rest of their layer, in one message"},
    {"zero_optimization", "stage3_max_live_parameters", "", kUnitsAtOnce},
    {"zero_optimization", "stage3_max_reuse_distance", "", kUnitsAtOnce},
    {"zero_optimization", "stage3_use_all_reduce_for_fetch_params", "false", kUnitsAtOnce},
    {"zero_optimization", "stage3_gather_16bit_weights_on_model_save", "",
     "a checkpoint has whole tensors for whoever reads it (msckpt convert)"},
    {"zero_optimization", "stage3_gather_fp16_weights_on_model_save", "",
     "a checkpoint has whole tensors for whoever reads it (msckpt convert)"},
    {"zero_optimization", "zero_hpz_partition_size", "1", "weights are divided over all owners"},
    {"zero_optimization", "mics_shard_size", "-1", "weights are divided over all owners"},
    {"zero_optimization", "mics_hierarchical_params_gather", "false", "weights are gathered within an instance"},
    {"zero_optimization", "zero_quantized_weights", "false", "messages have the weights' own type"},
    {"zero_optimization", "zero_quantized_nontrainable_weights", "false", "messages have the weights' own type"},
    {"zero_optimization", "zero_quantized_gradients", "false", "--grad-reduce-in-bf16 narrows gradients"},
    {"zero_optimization", "cpu_offload", "", kOnHost},
    {"zero_optimization", "cpu_offload_params", "", kOnHost},
    {"optimizer.params", "torch_adam", "", "there is one AdamW"},
    {"optimizer.params", "fused", "", "there is one AdamW"},
    {"optimizer.params", "adam_w_mode", "true", "weight decay is decoupled"},
    {"optimizer.params", "bias_correction", "true", "moments are corrected"},
    {"optimizer.params", "amsgrad", "false", "there is no largest second moment"},
    {"optimizer.params", "dampening", "0|0.0", "a gradient is added whole"},
    {"optimizer.params", "nesterov", "false", "momentum is torch's"},
};

// Whole sections that must be switched off: no member is true, and none is enabled.
constexpr std::string_view kSwitchedOff[] = {"tensorboard",
                                             "wandb",
                                             "csv_monitor",
                                             "comet",
                                             "comms_logger",
                                             "flops_profiler",
                                             "activation_checkpointing",
                                             "curriculum_learning",
                                             "data_efficiency",
                                             "compression_training",
                                             "autotuning",
                                             "amp",
                                             "elasticity",
                                             "hybrid_engine",
                                             "eigenvalue",
                                             "progressive_layer_drop",
                                             "nebula",
                                             "checkpoint",
                                             "compile"};

// A number as a flag takes it: 5e8 of a count is 500000000.
std::string flag_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::abs(number) < 9e15 && number == std::floor(number)) return cat(static_cast<int64_t>(number));
  }
  return value.dump();
}

class DeepspeedTranslator {
 public:
  DeepspeedTranslator(const core::ConfigFields& fields, std::string_view where) : given_(fields), where_(where) {}

  FlagsOfFile translate(const json& config) {
    if (!config.is_object()) fail(ErrorCode::kInvalidArgument, "expected a JSON object");
    lr_is_the_schedulers_ = sets_lr(config.value("scheduler", json()));
    for (const auto& [key, value] : config.items()) {
      if (std::ranges::find(kSwitchedOff, key) != std::end(kSwitchedOff)) {
        require_switched_off(key, value);
      } else if (key == "zero_optimization") {
        add_zero(object(key, value));
      } else if (key == "bf16" || key == "bfloat16" || key == "fp16") {
        add_precision(key == "fp16" ? "fp16" : "bf16", object(key, value));
      } else if (key == "optimizer") {
        add_optimizer(object(key, value));
      } else if (key == "data_types") {
        for (const auto& [member, of] : object(key, value).items()) add(key, member, of);
      } else if (key == "communication_data_type") {
        add_communication_type(value);
      } else if (key == "scheduler") {
        add_scheduler(object(key, value), config);
      } else if (key == "sparse_attention") {  // its presence switches it on
        fail(ErrorCode::kUnsupported, "sparse_attention is not supported: leave it out");
      } else {
        add("", key, value);
      }
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(ErrorCode code, const std::string& what) const { throw Error(code, cat(where_, ": ", what)); }
  static std::string path(std::string_view section, std::string_view key) {
    return section.empty() ? std::string(key) : cat(section, ".", key);
  }
  const json& object(std::string_view key, const json& value) const {
    if (!value.is_object()) fail(ErrorCode::kInvalidArgument, cat(key, " is ", value.dump(), "; expected an object"));
    return value;
  }
  bool truth(const std::string& key, const json& value) const {
    if (!value.is_boolean())
      fail(ErrorCode::kInvalidArgument, cat(key, " is ", value.dump(), "; expected true or false"));
    return value.get<bool>();
  }

  void set(const std::string& key, const json& stands_as, const char* field, const json& value) {
    if (value.is_structured()) fail(ErrorCode::kInvalidArgument, cat(key, " is ", value.dump(), "; expected a value"));
    const json given = given_.of(field);
    if (given.is_null()) {
      result_.flags.push_back(cat(flag_of_field(field), "=", flag_text(value)));
    } else if (given != value) {
      fail(ErrorCode::kInvalidArgument, cat(key, " is ", stands_as.dump(), ", but ", flag_of_field(field), " is ",
                                            given.dump(), ": give one of both, or \"auto\""));
    }
  }
  // A switch that the key contradicts.
  void require_off(const std::string& key, const json& value, const char* field) const {
    if (given_.of(field) != true) return;
    fail(ErrorCode::kInvalidArgument,
         cat(key, " is ", value.dump(), ", but ", flag_of_field(field), " is true: give one of both, or \"auto\""));
  }
  void notice(const std::string& key, const json& value, std::string_view why) {
    result_.notices.push_back(cat(key, " ", value.dump(), " changes nothing: ", why));
  }

  void add(std::string_view section, const std::string& key, const json& value) {
    if (value == "auto") return;
    const auto is_it = [&](const auto& row) { return row.section == section && row.key == key; };
    if (const auto same = std::ranges::find_if(kSameFields, is_it); same != std::end(kSameFields))
      return add_number(*same, value);
    const auto known = std::ranges::find_if(kWithoutEffect, is_it);
    if (known == std::end(kWithoutEffect)) unknown(section, key);
    const std::string values = cat("|", known->values, "|"), text = cat("|", value.dump(), "|");
    if (known->values.empty() || values.find(text) != std::string::npos)
      return notice(path(section, key), value, known->why);
    fail(ErrorCode::kUnsupported, cat(path(section, key), " ", value.dump(), " is not supported (", known->why,
                                      "): leave it out, or give ", known->values));
  }

  void add_number(const SameField& of, const json& value) {
    const std::string key = path(of.section, of.key);
    const bool is_number =
        value.is_number() && (!of.is_count || value.get<double>() == std::floor(value.get<double>()));
    if (!is_number)
      fail(ErrorCode::kInvalidArgument,
           cat(key, " is ", value.dump(), "; expected ", of.is_count ? "a whole number" : "a number"));
    const json given = given_.of(of.field);
    if (of.key == "steps_per_print" && !given.is_null() && given != value) {
      result_.notices.push_back(
          cat(key, " ", value.dump(), " changes nothing: --log-interval ", given.dump(), " is given, too, and wins"));
    } else if (key == "optimizer.params.lr" && lr_is_the_schedulers_) {
      notice(key, value, "the scheduler's warmup_max_lr replaces it");
    } else {
      set(key, value, of.field, value);
    }
  }

  static bool sets_lr(const json& scheduler) {
    if (!scheduler.is_object() || scheduler.value("type", json()) == "WarmupCosineLR") return false;
    const json params = scheduler.value("params", json::object());
    if (!params.is_object()) return false;
    const bool is_auto = std::ranges::all_of(params, [](const json& of) { return of == "auto"; });
    return (params.empty() || !is_auto) && params.value("warmup_max_lr", json()) != "auto";
  }
  // The learning rate that the file or the user gives to the optimizer.
  std::optional<double> optimizer_lr(const json& config) const {
    const json given = given_.of("lr");
    const json in_file = config.value(json::json_pointer("/optimizer/params/lr"), json());
    const json& lr = given.is_number() ? given : in_file;
    return lr.is_number() ? std::optional(lr.get<double>()) : std::nullopt;
  }
  void add_scheduler(const json& scheduler, const json& config) {
    bool is_constant = false;
    int64_t warmup = 0;
    const std::vector<DeepspeedSetting> settings =
        settings_of_deepspeed_scheduler(scheduler, optimizer_lr(config), where_);
    for (const DeepspeedSetting& of : settings) {
      const bool is_replaced = of.is_default && !given_.of(of.field.c_str()).is_null();
      if (!is_replaced) set(of.key, of.given, of.field.c_str(), of.value);
      is_constant = is_constant || of.value == "constant";
      if (of.field == "lr_warmup_iters") warmup = of.value;
    }
    // A warm-up may be longer than the run.
    if (is_constant && given_.of("lr_decay_iters").is_null() && given_.of("lr_decay_samples").is_null())
      result_.flags.push_back(cat("--lr-decay-iters=", warmup + 1));
    if (!settings.empty())
      result_.notices.push_back(
          "scheduler: a warm-up, and a linear decay, is a step ahead of DeepSpeed's, whose first two steps are alike");
  }

  [[noreturn]] void unknown(std::string_view section, const std::string& key) const {
    std::vector<std::string> names;
    for (const SameField& row : kSameFields) {
      if (row.section == section) names.emplace_back(row.key);
    }
    for (const WithoutEffect& row : kWithoutEffect) {
      if (row.section == section) names.emplace_back(row.key);
    }
    if (section == "zero_optimization") {
      for (const char* name : {"stage", "overlap_comm", "reduce_bucket_size", "allgather_bucket_size",
                               "offload_optimizer", "offload_param"})
        names.emplace_back(name);
    }
    if (section.empty()) {
      for (const char* name :
           {"zero_optimization", "optimizer", "scheduler", "bf16", "fp16", "data_types", "communication_data_type"})
        names.emplace_back(name);
      for (const std::string_view name : kSwitchedOff) names.emplace_back(name);
    }
    const std::string near = core::nearest_word(key, names);
    fail(ErrorCode::kInvalidArgument,
         cat("unknown key \"", path(section, key), "\"", near.empty() ? "" : cat(". Did you mean ", near, "?")));
  }

  void require_switched_off(const std::string& key, const json& value) {
    for (const auto& [member, of] : object(key, value).items()) {
      if (of == true)
        fail(ErrorCode::kUnsupported, cat(key, ".", member, " true is not supported; leave ", key, " out"));
    }
    notice(key, value, "it is switched off");
  }

  void add_zero(const json& zero) {
    const json given_stage = zero.value("stage", json(0));
    if (!given_stage.is_number_integer() || given_stage < 0 || given_stage > 3)
      fail(ErrorCode::kInvalidArgument, cat("zero_optimization.stage is ", given_stage.dump(), "; expected 0 to 3"));
    const int stage = given_stage.get<int>();
    constexpr const char* kKey = "zero_optimization.stage";
    if (stage >= 2) {
      set(kKey, given_stage, "use_megatron_fsdp", true);
      set(kKey, given_stage, "data_parallel_sharding_strategy", stage == 2 ? "optim_grads" : "optim_grads_params");
    } else {
      require_off(kKey, given_stage, "use_megatron_fsdp");
      if (stage == 1) set(kKey, given_stage, "use_distributed_optimizer", true);
      if (stage == 0) require_off(kKey, given_stage, "use_distributed_optimizer");
    }
    const json overlaps = zero.value("overlap_comm", json("auto"));
    const bool hides = stage >= 2 || given_.of("overlap_grad_reduce") == true ||
                       (overlaps != "auto" && truth("zero_optimization.overlap_comm", overlaps));
    for (const auto& [key, value] : zero.items()) {
      if (key == "stage" || value == "auto") continue;
      const std::string name = path("zero_optimization", key);
      if (key == "overlap_comm") {
        add_overlap(name, value, stage);
      } else if (key == "reduce_bucket_size" || key == "allgather_bucket_size") {
        add_bucket_size(name, value, stage, hides);
      } else if (key == "mics_shard_size" && value.is_number_integer() && value > 0) {
        set(name, value, "optimizer_weight_shard_size", value);
      } else if (key == "offload_optimizer" || key == "offload_param") {
        add_offload(name, object(name, value));
      } else {
        add("zero_optimization", key, value);
      }
    }
  }
  void add_overlap(const std::string& name, const json& value, int stage) {
    const bool overlaps = truth(name, value);
    if (stage >= 2) return notice(name, value, kUnitsAtOnce);
    if (overlaps) return set(name, value, "overlap_grad_reduce", true);
    require_off(name, value, "overlap_grad_reduce");
  }
  // hides: reductions are under way while the backward is computed.
  void add_bucket_size(const std::string& name, const json& value, int stage, bool hides) {
    const bool is_count = value.is_number() && value.get<double>() >= 1 && value.get<double>() < 9e15 &&
                          value.get<double>() == std::floor(value.get<double>());
    if (!is_count)
      fail(ErrorCode::kInvalidArgument, cat(name, " is ", value.dump(), "; expected a number of elements"));
    if (stage >= 2) return notice(name, value, kUnitsAtOnce);
    if (name.ends_with("allgather_bucket_size"))
      return notice(name, value, "weights are gathered in the buckets of gradients, or a layer at once");
    if (!hides) return notice(name, value, "without overlap_comm gradients are reduced behind the backward");
    set(name, value, "ddp_bucket_size", value.get<int64_t>());
  }
  void add_offload(const std::string& name, const json& offload) {
    const json device = offload.value("device", json("none"));
    if (device == "nvme") {
      fail(ErrorCode::kUnsupported,
           cat(name,
               ".device \"nvme\" is not supported: give \"cpu\", which is where it is, or "
               "--swap-optimizer and --swap-attention, which write state and activations to a file"));
    }
    if (device != "cpu" && device != "none")
      fail(ErrorCode::kInvalidArgument, cat(name, ".device is ", device.dump(), "; expected \"cpu\" or \"none\""));
    constexpr std::string_view kMembers[] = {"device",     "pin_memory", "buffer_count",  "buffer_size",
                                             "max_in_cpu", "fast_init",  "pipeline_read", "pipeline_write",
                                             "nvme_path",  "ratio"};
    for (const auto& item : offload.items()) {
      if (std::ranges::find(kMembers, item.key()) == std::end(kMembers))
        fail(ErrorCode::kInvalidArgument, cat("unknown key \"", name, ".", item.key(), "\""));
    }
    notice(name, offload, kOnHost);
  }

  void add_precision(const std::string& type, const json& section) {
    const json enabled = section.value("enabled", json(false));
    const bool is_on = enabled != "auto" && truth(type + ".enabled", enabled);
    if (is_on) set(type + ".enabled", enabled, type.c_str(), true);
    if (!is_on && enabled != "auto") require_off(type + ".enabled", enabled, type.c_str());
    for (const auto& [key, value] : section.items()) {
      if (key == "enabled" || value == "auto") continue;
      if (type == "fp16" && (key == "loss_scale" || key == "initial_scale_power")) {
        if (!value.is_number())
          fail(ErrorCode::kInvalidArgument, cat("fp16.", key, " is ", value.dump(), "; expected a number"));
        if (!is_on) continue;
        if (key == "initial_scale_power")
          set("fp16." + key, value, "initial_loss_scale", std::exp2(value.get<double>()));
        else if (value != 0)  // which is a dynamic one
          set("fp16." + key, value, "loss_scale", value);
      } else if (is_on || type != "fp16") {
        add(type, key, value);
      } else {
        notice(path(type, key), value, "fp16 is not enabled");
      }
    }
  }

  void add_optimizer(const json& optimizer) {
    const json type = optimizer.value("type", json());
    if (type == "Adam" || type == "AdamW") {
      set("optimizer.type", type, "optimizer", "adam");
    } else if (type == "SGD") {
      set("optimizer.type", type, "optimizer", "sgd");
    } else {
      fail(ErrorCode::kUnsupported, cat("optimizer.type is ", type.dump(), "; expected Adam, AdamW or SGD"));
    }
    for (const auto& [key, value] : optimizer.items()) {
      if (key == "type") continue;
      if (key != "params") fail(ErrorCode::kInvalidArgument, cat("unknown key \"optimizer.", key, "\""));
      for (const auto& [name, of] : object("optimizer.params", value).items()) {
        if (name != "betas" || of == "auto") {
          add("optimizer.params", name, of);
          continue;
        }
        if (!of.is_array() || of.size() != 2)
          fail(ErrorCode::kInvalidArgument, cat("optimizer.params.betas is ", of.dump(), "; expected two numbers"));
        set("optimizer.params.betas", of, "adam_beta1", of[0]);
        set("optimizer.params.betas", of, "adam_beta2", of[1]);
      }
    }
  }

  void add_communication_type(const json& value) {
    if (value == "auto") return;
    if (value == "bfp16" || value == "bf16") return set("communication_data_type", value, "grad_reduce_in_bf16", true);
    if (value != "fp32" && !value.is_null())
      fail(ErrorCode::kUnsupported,
           cat("communication_data_type is ", value.dump(), "; expected \"fp32\" or \"bf16\""));
    require_off("communication_data_type", value, "grad_reduce_in_bf16");
  }

  GivenValues given_;
  std::string_view where_;
  bool lr_is_the_schedulers_ = false;
  FlagsOfFile result_;
};

// Throws kInvalidArgument for a key that is given twice in one object, as DeepSpeed does.
json parse_without_duplicates(std::string_view text, std::string_view where) {
  std::vector<std::vector<std::string>> keys;
  return core::parse_json(text, where, [&](int /*depth*/, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event != json::parse_event_t::key) return true;
    const auto& key = value.get_ref<const std::string&>();
    if (std::ranges::find(keys.back(), key) != keys.back().end())
      throw Error(ErrorCode::kInvalidArgument, cat(where, ": key \"", key, "\" is given twice"));
    keys.back().push_back(key);
    return true;
  });
}

}  // namespace

FlagsOfFile flags_of_deepspeed(const json& config, const core::ConfigFields& fields, std::string_view where) {
  return DeepspeedTranslator(fields, where).translate(config);
}

std::vector<std::string> load_deepspeed_file(const std::string& path, core::ConfigFields& fields) {
  return take_flags_of_file("--deepspeed_config", path, fields, [&](const std::string& text) {
    return flags_of_deepspeed(parse_without_duplicates(text, path), fields, path);
  });
}

}  // namespace ms::train
