#include "convert/megatron/stage_pickle.h"

#include <type_traits>
#include <variant>

#include "convert/torch/torch_writer.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using nlohmann::json;

constexpr double kCheckpointVersion = 3.0;

void entry(PickleWriter& pickle, std::string_view key, bool value) {
  pickle.text(key);
  pickle.boolean(value);
}
void entry(PickleWriter& pickle, std::string_view key, int64_t value) {
  pickle.text(key);
  pickle.integer(value);
}
void entry(PickleWriter& pickle, std::string_view key, double value) {
  pickle.text(key);
  pickle.real(value);
}
void no_entry(PickleWriter& pickle, std::string_view key) {
  pickle.text(key);
  pickle.none();
}

void write_args(PickleWriter& pickle, const MegatronTreeState& state) {
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
            },
            value);
      }
    });
  };
  pickle.text("args");
  if (state.args_form == MegatronArgsForm::kDict) return members();
  pickle.instance("argparse", "Namespace", members);
}

// Names to tensors; first_storage: of the chunk's first parameter.
void write_chunk(PickleWriter& pickle, const MegatronChunk& chunk, MegatronNaming naming, bool has_output,
                 size_t first_storage) {
  const auto module_of = [](std::string_view name) { return name.substr(0, name.rfind('.') + 1); };
  const auto extra_state = [&](std::string_view module) {
    if (naming != MegatronNaming::kLocal || !has_extra_state(module)) return;
    no_entry(pickle, core::cat(module, "_extra_state"));
  };
  pickle.dict([&] {
    for (size_t p = 0; p < chunk.size(); ++p) {
      const MegatronParameter& parameter = chunk[p];
      const auto elements = static_cast<int64_t>(parameter.tensor.elements());
      pickle.text(parameter.name);
      write_torch_tensor(pickle, {.dtype = parameter.tensor.dtype,
                                  .storage = first_storage + p,
                                  .storage_elements = elements,
                                  .shape = {parameter.tensor.shape.begin(), parameter.tensor.shape.end()}});
      const std::string_view module = module_of(parameter.name);
      if (module == module_of(kMegatronOutput)) continue;  // below, since it may have no parameters
      if (p + 1 == chunk.size() || module_of(chunk[p + 1].name) != module) extra_state(module);
    }
    if (has_output) extra_state(module_of(kMegatronOutput));
  });
}

void write_groups(PickleWriter& pickle, const MegatronTreeState& state, const StagePlan& plan) {
  const auto of_schedule = [&](const char* key) {
    return state.scheduler.is_null() ? 0 : state.scheduler[key].get<double>();
  };
  const bool by_position = state.optimizer == MegatronOptimizerForm::kByPosition;
  MS_CHECK(!by_position || plan.groups.size() == 2, plan.groups.size(), " groups of parameters");
  int64_t index = 0;  // of a parameter
  pickle.text("param_groups");
  pickle.list([&] {
    for (size_t group = 0; group < 2; ++group) {  // with weight decay, and without
      pickle.dict([&] {
        entry(pickle, "is_expert_parallel", false);
        entry(pickle, "default_config", true);
        entry(pickle, "wd_mult", group == 0 ? 1.0 : 0.0);
        entry(pickle, "lr_mult", 1.0);
        entry(pickle, "is_decoupled_lr", false);
        entry(pickle, "max_lr", of_schedule("max_lr"));
        entry(pickle, "min_lr", of_schedule("min_lr"));
        entry(pickle, "lr", of_schedule("max_lr"));
        pickle.text("betas");
        pickle.tuple([&] {
          pickle.real(state.adam.beta1);
          pickle.real(state.adam.beta2);
        });
        entry(pickle, "eps", state.adam.eps);
        entry(pickle, "weight_decay", of_schedule("end_wd"));
        for (const char* off : {"amsgrad", "maximize", "capturable", "differentiable"}) entry(pickle, off, false);
        for (const char* none : {"foreach", "fused"}) no_entry(pickle, none);
        for (const char* on : {"decoupled_weight_decay", "bias_correction"}) entry(pickle, on, true);
        entry(pickle, "step", state.step);
        if (!by_position) return;
        pickle.text("params");
        pickle.list([&] {
          for (size_t p = 0; p < plan.groups[group].size(); ++p) pickle.integer(index++);
        });
      });
    }
  });
}

void write_state_tensor(PickleWriter& pickle, const MegatronParameter& parameter, size_t storage) {
  write_torch_tensor(pickle, {.dtype = SafetensorsDType::kF32,
                              .storage = storage,
                              .storage_elements = static_cast<int64_t>(parameter.tensor.elements()),
                              .shape = {parameter.tensor.shape.begin(), parameter.tensor.shape.end()}});
}

// What PyTorch's optimizer says of itself: state and param_groups.
void write_inner_optimizer(PickleWriter& pickle, const MegatronTreeState& state, const StagePlan& plan) {
  pickle.dict([&] {
    if (state.optimizer == MegatronOptimizerForm::kByPosition) {
      int64_t index = 0;
      pickle.text("state");
      pickle.dict([&] {
        for (const auto& group : plan.groups) {
          for (const StagePlan::PositionState& position : group) {
            pickle.integer(index++);
            pickle.dict([&] {
              pickle.text("step");
              write_torch_tensor(pickle, {.storage = position.step, .storage_elements = 1});
              pickle.text("exp_avg");
              write_state_tensor(pickle, *position.parameter, position.exp_avg);
              pickle.text("exp_avg_sq");
              write_state_tensor(pickle, *position.parameter, position.exp_avg_sq);
            });
          }
        }
      });
    }
    write_groups(pickle, state, plan);
  });
}

void write_optimizer(PickleWriter& pickle, const MegatronTreeState& state, const StagePlan& plan) {
  const bool by_position = state.optimizer == MegatronOptimizerForm::kByPosition;
  bool is_fp32 = true;  // megatron-core's FP32Optimizer has no masters, and its state no layer around
  for (const MegatronChunk& chunk : plan.chunks) {
    for (const MegatronParameter& parameter : chunk) {
      is_fp32 = is_fp32 && parameter.tensor.dtype == SafetensorsDType::kF32;
    }
  }
  pickle.text("optimizer");
  if (by_position && is_fp32) return write_inner_optimizer(pickle, state, plan);
  pickle.dict([&] {
    pickle.text("optimizer");
    write_inner_optimizer(pickle, state, plan);
    if (!by_position) return;
    pickle.text("fp32_from_fp16_params");
    pickle.list([&] {
      for (const auto& group : plan.groups) {
        pickle.list([&] {
          for (const StagePlan::PositionState& position : group) {
            if (position.master) write_state_tensor(pickle, *position.parameter, *position.master);
          }
        });
      }
    });
  });
}

void write_scheduler(PickleWriter& pickle, const json& scheduler) {
  if (scheduler.is_null()) return;
  pickle.text("opt_param_scheduler");
  pickle.dict([&] {
    for (const auto& [key, value] : scheduler.items()) {
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

}  // namespace

std::string model_pickle(const MegatronTreeState& state, const StagePlan& plan, bool last) {
  return make_pickle([&](PickleWriter& pickle) {
    pickle.dict([&] {
      write_args(pickle, state);
      entry(pickle, "checkpoint_version", kCheckpointVersion);
      entry(pickle, "iteration", state.iteration);
      size_t first_storage = 0;
      for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
        pickle.text(plan.chunks.size() == 1 ? "model" : core::cat("model", chunk));
        write_chunk(pickle, plan.chunks[chunk], state.naming, last && chunk + 1 == plan.chunks.size(), first_storage);
        first_storage += plan.chunks[chunk].size();
      }
      if (state.optimizer != MegatronOptimizerForm::kNone) write_optimizer(pickle, state, plan);
      write_scheduler(pickle, state.scheduler);
    });
  });
}

std::string optimizer_pickle(const StagePlan& plan) {
  return make_pickle([&](PickleWriter& pickle) {
    pickle.dict([&] {
      entry(pickle, "buckets_coalesced", true);
      for (size_t b = 0; b < plan.buffers.size(); ++b) {
        const StagePlan::BufferState& buffer = plan.buffers[b];
        pickle.integer(static_cast<int64_t>(b));
        pickle.dict([&] {
          pickle.tuple([&] {  // types of weights and of gradients; Megatron accumulates those of fp16 in fp16
            write_torch_dtype(pickle, buffer.dtype);
            write_torch_dtype(pickle, buffer.dtype == SafetensorsDType::kF16 ? buffer.dtype : SafetensorsDType::kF32);
          });
          pickle.dict([&] {
            for (size_t k = 0; k < std::size(kOptimizerKinds); ++k) {
              pickle.text(kOptimizerKinds[k].key);
              write_torch_tensor(pickle, {.storage = buffer.first_storage + k,
                                          .storage_elements = buffer.elements,
                                          .shape = {buffer.elements}});
            }
            entry(pickle, "numel_unpadded", buffer.elements);
          });
        });
      }
    });
  });
}

}  // namespace ms::convert
