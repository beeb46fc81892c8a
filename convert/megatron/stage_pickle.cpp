#include "convert/megatron/stage_pickle.h"

#include "convert/megatron/state_pickle.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"

namespace ms::convert {
namespace {

// Names to tensors; first_storage: of the chunk's first parameter.
void write_chunk(PickleWriter& pickle, const MegatronChunk& chunk, MegatronNaming naming, bool has_output,
                 size_t first_storage) {
  const auto module_of = [](std::string_view name) { return name.substr(0, name.rfind('.') + 1); };
  const auto extra_state = [&](std::string_view module) {
    if (naming != MegatronNaming::kLocal || !has_extra_state(module)) return;
    pickle_none(pickle, core::cat(module, "_extra_state"));
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

void write_state_tensor(PickleWriter& pickle, const MegatronParameter& parameter, size_t storage) {
  write_torch_tensor(pickle, {.dtype = SafetensorsDType::kF32,
                              .storage = storage,
                              .storage_elements = static_cast<int64_t>(parameter.tensor.elements()),
                              .shape = {parameter.tensor.shape.begin(), parameter.tensor.shape.end()}});
}

// What PyTorch's optimizer says of itself: state and param_groups.
void write_inner_optimizer(PickleWriter& pickle, const MegatronTargetState& state, const StagePlan& plan) {
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
    std::vector<size_t> counts;
    for (const auto& group : plan.groups) counts.push_back(group.size());
    write_param_groups(pickle, state, counts);
  });
}

void write_optimizer(PickleWriter& pickle, const MegatronTargetState& state, const StagePlan& plan) {
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

}  // namespace

std::string model_pickle(const MegatronTargetState& state, const StagePlan& plan, bool last) {
  return make_pickle([&](PickleWriter& pickle) {
    pickle.dict([&] {
      write_megatron_args(pickle, state);
      pickle_entry(pickle, "checkpoint_version", kMegatronCheckpointVersion);
      pickle_entry(pickle, "iteration", state.iteration);
      size_t first_storage = 0;
      for (size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
        pickle.text(plan.chunks.size() == 1 ? "model" : core::cat("model", chunk));
        write_chunk(pickle, plan.chunks[chunk], state.naming, last && chunk + 1 == plan.chunks.size(), first_storage);
        first_storage += plan.chunks[chunk].size();
      }
      if (state.optimizer != MegatronOptimizerForm::kNone) write_optimizer(pickle, state, plan);
      write_megatron_scheduler(pickle, state);
    });
  });
}

std::string optimizer_pickle(const StagePlan& plan) {
  return make_pickle([&](PickleWriter& pickle) {
    pickle.dict([&] {
      pickle_entry(pickle, "buckets_coalesced", true);
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
            pickle_entry(pickle, "numel_unpadded", buffer.elements);
          });
        });
      }
    });
  });
}

}  // namespace ms::convert
