#include "convert/megatron/stage_plan.h"

#include <algorithm>

#include "core/error.h"
#include "core/layout/parameter_specs.h"
#include "core/layout/tensor_cut.h"

namespace ms::convert {
namespace {

using core::DType;
using core::TensorRole;

// Lists the parameters of a chunk in registration order; of the experts, those of the first rank of each sharing group.
MegatronChunk plan_chunk(const MegatronModel& model, int pp, int chunk, const MegatronSpelling& spelling,
                         const std::function<DType(const std::string&)>& dtype) {
  struct Placed {
    RegistrationPlace place;
    MegatronParameter parameter;
  };
  std::vector<Placed> placed;
  const auto add = [&](size_t s, const std::string& key, bool is_tied_copy) {
    const layout::ParameterSpec& spec = model.specs[s];
    const MegatronName name = megatron_name(parse_canonical_name(key), spelling);
    const int64_t slot = name.layer < 0 ? 0 : model.layers.slot_of(name.layer).index;
    MegatronParameter parameter{s, name.key(slot, name.expert), {}, is_tied_copy};
    parameter.tensor.dtype = from_core_dtype(dtype(spec.key));
    for (const int64_t length : layout::local_shape(spec, model.padded, model.cut_of(spec, 0).size)) {
      parameter.tensor.shape.push_back(static_cast<uint64_t>(length));
    }
    placed.push_back({registration_place(name), std::move(parameter)});
  };
  for (size_t s = 0; s < model.specs.size(); ++s) {
    const layout::ParameterSpec& spec = model.specs[s];
    if (model.chunk_holds(spec, pp, chunk) && model.rank_holds(spec, 0, 0)) add(s, spec.key, false);
  }
  if (model.layout.pipeline_model_parallel_size > 1 && model.layers.is_last_chunk(pp, chunk)) {
    for (size_t s = 0; s < model.specs.size(); ++s) {
      const std::string& key = model.specs[s].key;
      if (key == kWordEmbeddings && model.config.mtp_num_layers > 0) add(s, key, true);
      if (model.specs[s].is_tied_embedding) add(s, std::string(kMegatronOutput), true);
    }
  }
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.place < b.place; });
  MegatronChunk planned;
  for (Placed& each : placed) planned.push_back(std::move(each.parameter));
  for (size_t p = 0, end = 0; p < planned.size(); p = end) {  // parameters of one tensor
    for (end = p + 1; end < planned.size() && planned[end].name == planned[p].name; ++end) {
      planned[end].in_tensor = 0;
    }
    planned[p].in_tensor = static_cast<int64_t>(end - p);
    for (size_t e = p; e < end; ++e) planned[e].is_grouped = is_grouped_experts({-1, planned[e].name});
  }
  return planned;
}

// Elements of the whole tensor.
int64_t elements_of(const MegatronParameter& parameter) {
  return static_cast<int64_t>(parameter.tensor.elements()) * parameter.in_tensor;
}

size_t add_storage(StageFile& file, int64_t elements, DType dtype) {
  file.storage_bytes.push_back(elements * core::size_of(dtype));
  return file.storage_bytes.size() - 1;
}

// Adds the parameters of a tensor that begins at element `first` of the storage.
void add_parts(StageFile& file, const MegatronParameter& parameter, TensorRole role, DType dtype, size_t storage,
               int64_t first) {
  if (!parameter.is_grouped) return file.tensors.push_back({&parameter, role, dtype, storage, first});
  for (const MegatronParameter& expert : all_in_tensor(parameter)) {
    file.tensors.push_back({&expert, role, dtype, storage, first, static_cast<int64_t>(expert.tensor.shape[0])});
    first += static_cast<int64_t>(expert.tensor.elements());
  }
}

// Adds a tensor with a storage of its own.
size_t add_tensor(StageFile& file, const MegatronParameter& parameter, TensorRole role, DType dtype) {
  const size_t storage = add_storage(file, elements_of(parameter), dtype);
  add_parts(file, parameter, role, dtype, storage, 0);
  return storage;
}

// Plans the weights of a chunk.
std::vector<StagePlan::Entry> plan_entries(const MegatronModel& model, const MegatronChunk& chunk, StageFile& file) {
  std::vector<StagePlan::Entry> entries;
  for (const MegatronParameter& parameter : chunk) {
    if (parameter.in_tensor == 0) continue;
    const TensorRole role = model.specs[parameter.spec].is_buffer ? TensorRole::kBuffer : TensorRole::kParam;
    const std::vector<uint64_t> shape = stored_shape(parameter);
    const size_t storage = add_tensor(file, parameter, role, *to_core_dtype(parameter.tensor.dtype));
    entries.push_back({parameter.name, parameter.tensor.dtype, {shape.begin(), shape.end()}, storage});
  }
  return entries;
}

void plan_by_position(const MegatronModel& model, int64_t step, StagePlan& plan) {
  for (StagePlan::Optimizer& optimizer : plan.optimizers) {
    for (const MegatronParameters& group : optimizer_groups(model, plan.chunks, {}, optimizer.part)) {
      std::vector<StagePlan::PositionState>& states = optimizer.groups.emplace_back();
      for (const MegatronParameter* parameter : group) {
        StagePlan::PositionState state{parameter, {}, 0, 0, 0};
        if (parameter->tensor.dtype != SafetensorsDType::kF32) {
          state.master = add_tensor(plan.model, *parameter, TensorRole::kMaster, DType::kFp32);
        }
        state.exp_avg = add_tensor(plan.model, *parameter, TensorRole::kExpAvg, DType::kFp32);
        state.exp_avg_sq = add_tensor(plan.model, *parameter, TensorRole::kExpAvgSq, DType::kFp32);
        // One storage per parameter: PyTorch's Adam increments the step in place.
        const auto steps = static_cast<float>(step);
        state.step = add_storage(plan.model, 1, DType::kFp32);
        plan.model.contents.emplace_back(state.step, std::string(reinterpret_cast<const char*>(&steps), sizeof steps));
        states.push_back(state);
      }
    }
    optimizer.groups.resize(num_optimizer_groups(optimizer.part));
  }
}

// Plans one bucket, as without --overlap-grad-reduce, in the layout of megatron-core since 0.13.
void plan_distributed(const MegatronModel& model, StagePlan& plan) {
  for (StagePlan::Optimizer& optimizer : plan.optimizers) {
    for (const MegatronChunk& chunk : plan.chunks) {
      for (const MegatronParameters& parameters : optimizer_buffers(model, chunk, optimizer.part)) {
        const FlatLayout layout = flat_layout(flat_parameters(model, parameters), {});
        StagePlan::BufferState buffer{parameters[0]->tensor.dtype, layout.end, optimizer.file.storage_bytes.size()};
        for (const OptimizerKind& kind : kOptimizerKinds) {
          const size_t storage = add_storage(optimizer.file, layout.end, DType::kFp32);
          for (size_t p = 0; p < parameters.size(); ++p) {
            add_parts(optimizer.file, *parameters[p], kind.role, DType::kFp32, storage, layout.begin[p]);
          }
        }
        optimizer.buffers.push_back(buffer);
      }
    }
  }
}

}  // namespace

StagePlan plan_stage(const MegatronModel& model, int pp, const MegatronSpelling& spelling,
                     MegatronOptimizerForm optimizer, int64_t step,
                     const std::function<DType(const std::string& key)>& dtype) {
  StagePlan plan;
  for (int chunk = 0; chunk < model.layout.virtual_pipeline_model_parallel_size; ++chunk) {
    plan.chunks.push_back(plan_chunk(model, pp, chunk, spelling, dtype));
  }
  for (const MegatronChunk& chunk : plan.chunks) {
    plan.entries.push_back(plan_entries(model, chunk, plan.model));
    plan.is_fp32 = plan.is_fp32 && std::all_of(chunk.begin(), chunk.end(), [&](const MegatronParameter& parameter) {
                     return parameter.tensor.dtype == SafetensorsDType::kF32 || model.specs[parameter.spec].is_buffer;
                   });
  }
  if (optimizer == MegatronOptimizerForm::kNone) return plan;
  plan.optimizers.emplace_back();
  if (has_expert_optimizer(model)) {
    plan.optimizers[0].part = OptimizerPart::kDense;
    plan.optimizers.emplace_back().part = OptimizerPart::kExperts;
  }
  if (optimizer == MegatronOptimizerForm::kByPosition) {
    plan_by_position(model, step, plan);
  } else {
    plan_distributed(model, plan);
  }
  return plan;
}

}  // namespace ms::convert
