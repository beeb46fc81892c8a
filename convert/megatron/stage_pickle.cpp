#include "convert/megatron/stage_pickle.h"

#include "convert/megatron/state_pickle.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"

namespace ms::convert {
namespace {

// Writes a dictionary from names to tensors.
void write_chunk(PickleWriter& pickle, const std::vector<StagePlan::Entry>& chunk, MegatronNaming naming,
                 bool has_output) {
  const auto module_of = [](std::string_view name) { return name.substr(0, name.rfind('.') + 1); };
  const auto extra_state = [&](std::string_view module) {
    if (naming != MegatronNaming::kLocal || !has_extra_state(module)) return;
    pickle_none(pickle, core::cat(module, "_extra_state"));
  };
  pickle.dict([&] {
    for (size_t e = 0; e < chunk.size(); ++e) {
      const StagePlan::Entry& entry = chunk[e];
      pickle.text(entry.name);
      write_torch_tensor(pickle, {.dtype = entry.dtype,
                                  .storage = entry.storage,
                                  .storage_elements = core::num_elements(entry.shape),
                                  .shape = entry.shape});
      const std::string_view module = module_of(entry.name);
      if (module == module_of(kMegatronOutput)) continue;  // written below, since the module may have no parameters
      if (e + 1 == chunk.size() || module_of(chunk[e + 1].name) != module) extra_state(module);
    }
    if (has_output) extra_state(module_of(kMegatronOutput));
  });
}

void write_state_tensor(PickleWriter& pickle, const MegatronParameter& parameter, size_t storage) {
  const std::vector<uint64_t> stored = stored_shape(parameter);
  const core::Dims shape(stored.begin(), stored.end());
  write_torch_tensor(pickle, {.dtype = SafetensorsDType::kF32,
                              .storage = storage,
                              .storage_elements = core::num_elements(shape),
                              .shape = shape});
}

// Writes state and param_groups, the state_dict of a PyTorch optimizer.
void write_inner_optimizer(PickleWriter& pickle, const MegatronTargetState& state,
                           const StagePlan::Optimizer& optimizer) {
  pickle.dict([&] {
    if (state.optimizer == MegatronOptimizerForm::kByPosition) {
      int64_t index = 0;
      pickle.text("state");
      pickle.dict([&] {
        for (const auto& group : optimizer.groups) {
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
    std::vector<size_t> counts;
    for (const auto& group : optimizer.groups) counts.push_back(group.size());
    write_param_groups(pickle, state, optimizer.part, counts);
  });
}

void write_one_optimizer(PickleWriter& pickle, const MegatronTargetState& state, const StagePlan::Optimizer& optimizer,
                         bool is_fp32) {
  const bool by_position = state.optimizer == MegatronOptimizerForm::kByPosition;
  if (by_position && is_fp32) return write_inner_optimizer(pickle, state, optimizer);
  pickle.dict([&] {
    pickle.text("optimizer");
    write_inner_optimizer(pickle, state, optimizer);
    if (!by_position) return;
    pickle.text("fp32_from_fp16_params");
    pickle.list([&] {
      for (const auto& group : optimizer.groups) {
        pickle.list([&] {
          for (const StagePlan::PositionState& position : group) {
            if (position.master) write_state_tensor(pickle, *position.parameter, *position.master);
          }
        });
      }
    });
  });
}

// Writes one optimizer, or a list of chained ones.
void write_optimizer(PickleWriter& pickle, const MegatronTargetState& state, const StagePlan& plan) {
  const auto write = [&](const StagePlan::Optimizer& one) { write_one_optimizer(pickle, state, one, plan.is_fp32); };
  pickle.text("optimizer");
  if (plan.optimizers.size() == 1) return write(plan.optimizers[0]);
  pickle.list([&] {
    for (const StagePlan::Optimizer& one : plan.optimizers) write(one);
  });
}

// first_storage: index of this optimizer's first storage in the file.
void write_buffers(PickleWriter& pickle, const StagePlan::Optimizer& optimizer, size_t first_storage) {
  pickle.dict([&] {
    pickle_entry(pickle, "buckets_coalesced", true);
    for (size_t b = 0; b < optimizer.buffers.size(); ++b) {
      const StagePlan::BufferState& buffer = optimizer.buffers[b];
      pickle.integer(static_cast<int64_t>(b));
      pickle.dict([&] {
        pickle.tuple([&] {  // dtypes of weights and of gradients; Megatron accumulates fp16 gradients in fp16
          write_torch_dtype(pickle, buffer.dtype);
          write_torch_dtype(pickle, buffer.dtype == SafetensorsDType::kF16 ? buffer.dtype : SafetensorsDType::kF32);
        });
        pickle.dict([&] {
          for (size_t k = 0; k < std::size(kOptimizerKinds); ++k) {
            pickle.text(kOptimizerKinds[k].key);
            write_torch_tensor(pickle, {.storage = first_storage + buffer.first_storage + k,
                                        .storage_elements = buffer.elements,
                                        .shape = {buffer.elements}});
          }
          pickle_entry(pickle, "numel_unpadded", buffer.elements);
        });
      });
    }
  });
}

}  // namespace

std::string model_pickle(const MegatronTargetState& state, const StagePlan& plan, bool last) {
  return make_pickle([&](PickleWriter& pickle) {
    pickle.dict([&] {
      write_megatron_args(pickle, state);
      pickle_entry(pickle, "checkpoint_version", kMegatronCheckpointVersion);
      pickle_entry(pickle, "iteration", state.iteration);
      for (size_t chunk = 0; chunk < plan.entries.size(); ++chunk) {
        pickle.text(plan.entries.size() == 1 ? "model" : core::cat("model", chunk));
        write_chunk(pickle, plan.entries[chunk], state.naming, last && chunk + 1 == plan.entries.size());
      }
      if (state.optimizer != MegatronOptimizerForm::kNone) write_optimizer(pickle, state, plan);
      write_megatron_scheduler(pickle, state);
    });
  });
}

std::string optimizer_pickle(const StagePlan& plan, const std::vector<bool>& held) {
  return make_pickle([&](PickleWriter& pickle) {
    if (plan.optimizers.size() == 1) return write_buffers(pickle, plan.optimizers[0], 0);
    pickle.list([&] {
      size_t first_storage = 0;
      for (size_t i = 0; i < plan.optimizers.size(); ++i) {
        if (!held[i]) {
          pickle.none();
          continue;
        }
        write_buffers(pickle, plan.optimizers[i], first_storage);
        first_storage += plan.optimizers[i].file.storage_bytes.size();
      }
    });
  });
}

}  // namespace ms::convert
