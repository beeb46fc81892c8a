#include "convert/megatron/state_pickle.h"

#include <optional>
#include <type_traits>
#include <variant>

#include "convert/torch/torch_writer.h"
#include "core/error.h"

namespace ms::convert {

void pickle_entry(PickleWriter& pickle, std::string_view key, bool value) {
  pickle.text(key);
  pickle.boolean(value);
}
void pickle_entry(PickleWriter& pickle, std::string_view key, int64_t value) {
  pickle.text(key);
  pickle.integer(value);
}
void pickle_entry(PickleWriter& pickle, std::string_view key, double value) {
  pickle.text(key);
  pickle.real(value);
}
void pickle_none(PickleWriter& pickle, std::string_view key) {
  pickle.text(key);
  pickle.none();
}

void write_megatron_args(PickleWriter& pickle, const MegatronTargetState& state) {
  if (state.args_form == MegatronArgsForm::kOmit) return;
  const auto members = [&] {
    pickle.dict([&] {
      for (const auto& [name, value] : state.args) {
        pickle.text(name);
        std::visit(
            [&](const auto& member) {
              using Value = std::decay_t<decltype(member)>;
              if constexpr (std::is_same_v<Value, std::monostate>) pickle.none();
              if constexpr (std::is_same_v<Value, bool>) pickle.boolean(member);
              if constexpr (std::is_same_v<Value, int64_t>) pickle.integer(member);
              if constexpr (std::is_same_v<Value, double>) pickle.real(member);
              if constexpr (std::is_same_v<Value, std::string>) pickle.text(member);
              if constexpr (std::is_same_v<Value, SafetensorsDType>) write_torch_dtype(pickle, member);
              if constexpr (std::is_same_v<Value, std::vector<int64_t>>) {
                pickle.list([&] {
                  for (const int64_t item : member) pickle.integer(item);
                });
              }
            },
            value);
      }
    });
  };
  pickle.text("args");
  if (state.args_form == MegatronArgsForm::kDict) return members();
  pickle.instance("argparse", "Namespace", members);
}

void write_param_groups(PickleWriter& pickle, const MegatronTargetState& state, OptimizerPart part,
                        std::span<const size_t> counts) {
  const auto optional_entry = [&](const char* key, std::optional<double> value) {
    if (value) pickle_entry(pickle, key, *value);
  };
  const size_t groups = num_optimizer_groups(part);
  MS_CHECK(counts.empty() || counts.size() == groups, counts.size(), " groups of parameters");
  int64_t index = 0;  // of the next parameter, counted over both groups
  pickle.text("param_groups");
  pickle.list([&] {
    for (size_t group = 0; group < groups; ++group) {  // with weight decay, then without
      const ckpt::OptimizerGroup& settings = group == 0 ? state.decayed : state.other;
      const auto decoupled = settings.options.find("decoupled_weight_decay");
      pickle.dict([&] {
        pickle_entry(pickle, "is_expert_parallel", part == OptimizerPart::kExperts);
        pickle_entry(pickle, "default_config", true);
        pickle_entry(pickle, "wd_mult", *settings.wd_mult);
        pickle_entry(pickle, "lr_mult", 1.0);
        pickle_entry(pickle, "is_decoupled_lr", false);
        optional_entry("max_lr", settings.max_lr);
        optional_entry("min_lr", settings.min_lr);
        optional_entry("lr", settings.lr);
        pickle.text("betas");
        pickle.tuple([&] {
          pickle.real(*settings.beta1);
          pickle.real(*settings.beta2);
        });
        pickle_entry(pickle, "eps", *settings.eps);
        optional_entry("weight_decay", settings.weight_decay);
        for (const char* off : {"amsgrad", "maximize", "capturable", "differentiable"})
          pickle_entry(pickle, off, false);
        for (const char* none : {"foreach", "fused"}) pickle_none(pickle, none);
        pickle_entry(pickle, "decoupled_weight_decay", decoupled == settings.options.end() || *decoupled != false);
        pickle_entry(pickle, "bias_correction", true);
        pickle_entry(pickle, "step", state.step);
        if (counts.empty()) return;
        pickle.text("params");
        pickle.list([&] {
          for (size_t p = 0; p < counts[group]; ++p) pickle.integer(index++);
        });
      });
    }
  });
}

void write_megatron_scheduler(PickleWriter& pickle, const MegatronTargetState& state) {
  if (state.scheduler.is_null()) return;
  pickle.text("opt_param_scheduler");
  pickle.dict([&] {
    for (const auto& [key, value] : state.scheduler.items()) {
      pickle.text(key);
      if (value.is_string()) {
        pickle.text(value.get<std::string>());
      } else if (value.is_number_integer()) {
        pickle.integer(value.get<int64_t>());
      } else {
        pickle.real(value.get<double>());
      }
    }
  });
}

}  // namespace ms::convert
