#include "train/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ckpt/optimizer_settings.h"
#include "core/error.h"
#include "core/layout/box.h"
#include "core/layout/model_layout.h"
#include "core/layout/sharding.h"
#include "core/layout/tensor_cut.h"
#include "core/layout/training_step.h"
#include "core/rng.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_norm_weight(const std::string& key) { return key.find("norm") != std::string::npos && !ends_with(key, "bias"); }

}  // namespace

ParameterStore::ParameterStore(RankState& state)
    : ParameterStore(state, [&, layout = state.layout()](const layout::ParameterSpec& spec) {
        return layout::rank_holds(spec, state.config.model, layout, state.groups.world.rank());
      }) {}

ParameterStore::ParameterStore(RankState& state, core::FunctionRef<bool(const layout::ParameterSpec&)> holds)
    : state_(state), model_(layout::parameter_specs(state.config.model)) {
  const std::vector<std::string> frozen = frozen_parameters(state.config.optimizer, state.config.model);
  cut_ = layout::BufferCut(state.layout().sharding(), state.groups.grid);
  frozen_ = layout::BufferCut(
      {.data_parallel_size = state.groups.dp_cp.size(), .num_instances = cut_.sharding().num_instances},
      state.groups.grid);
  for (const layout::ParameterSpec& spec : model_) {
    if (!holds(spec)) continue;
    if (spec.is_buffer) {
      buffers_.push_back(
          {spec, core::Tensor::zeros(state.ops.arena, core::DType::kFp32, spec.global_shape, core::MemoryTag::kParam)});
      continue;
    }
    Parameter parameter = describe(spec);
    parameter.group.trains = !std::ranges::binary_search(frozen, spec.key);
    const auto [unit, offset] = (parameter.trains() ? cut_ : frozen_).add(spec, parameter.size());
    parameter.unit = unit;
    parameter.offset_elems = offset;
    if (parameter.trains()) trained_of_unit_[unit].push_back(parameters_.size());
    parameters_.push_back(std::move(parameter));
  }
  cut_.finish();
  const int64_t trained = cut_.size();
  frozen_.finish(trained);
  const bool whole = !cut_.sharding().gradients(), whole_weights = !cut_.sharding().weights();
  const int64_t kept = whole_weights ? trained : cut_.owned_size();
  weights_ = core::Tensor::zeros(state.ops.arena, state.config.params_dtype(), {kept + frozen_.size()},
                                 core::MemoryTag::kParam);
  grads_ = core::Tensor::zeros(state.ops.arena, core::DType::kFp32, {whole ? trained : cut_.owned_size()},
                               core::MemoryTag::kGrad);
  for (Parameter& parameter : parameters_) {
    const core::Dims local = parameter.weight.shape();
    const int64_t count = core::num_elements(local);
    const bool trains = parameter.trains();
    parameter.offset_elems += unit_of(parameter).range.begin;
    const layout::FlatRange all = {parameter.offset_elems, parameter.offset_elems + count};
    const bool is_alone = trains && num_owners(parameter) == 1;
    if (!trains) {
      parameter.weight = weights_.view().rows(all.begin - trained + kept, all.end - trained + kept).reshaped(local);
    } else if (whole_weights || is_alone) {
      parameter.weight = owned_weights(all).reshaped(local);
    }
    if (trains && (whole || is_alone)) parameter.main_grad = owned_grads(all).reshaped(local);
  }
}

layout::FlatRange ParameterStore::owned_part(const Parameter& parameter) const {
  if (!parameter.trains()) return {};
  return cut_.owned_part({parameter.offset_elems, parameter.offset_elems + parameter.size()},
                         owners(unit_of(parameter)).rank());
}

layout::FlatRange ParameterStore::state_part(const Parameter& parameter) const {
  const layout::FlatRange owned = owned_part(parameter);
  if (owned.begin >= owned.end) return owned;
  const layout::FlatRange place = owned_place(owned), block = cut_.state_block(unit_of(parameter), instance());
  const int64_t first = owned.begin - place.begin;  // of the buffer, to where it is among the owned ones
  return {std::max(place.begin, block.begin) + first, std::min(place.end, block.end) + first};
}

layout::FlatRange ParameterStore::state_place(layout::FlatRange part) const {
  return cut_.state_place(cut_.unit_at(part.begin), owned_place(part), instance());
}

layout::FlatRange ParameterStore::owned_place(layout::FlatRange part) const {
  return cut_.owned_place(part, owners(cut_.unit_at(part.begin)).rank());
}

core::TensorView ParameterStore::owned_grads(layout::FlatRange part) const {
  if (cut_.sharding().gradients()) part = owned_place(part);
  return grads_.view().rows(part.begin, part.end);
}

core::TensorView ParameterStore::owned_weights(layout::FlatRange part) const {
  if (cut_.sharding().weights()) part = owned_place(part);
  return weights_.view().rows(part.begin, part.end);
}

void ParameterStore::place_grads(size_t unit, std::byte* memory) {
  place(unit, memory, core::DType::kFp32, &Parameter::main_grad);
}

void ParameterStore::place_weights(size_t unit, std::byte* memory) {
  place(unit, memory, weights_.dtype(), &Parameter::weight);
}

void ParameterStore::place(size_t unit, std::byte* memory, core::DType dtype, core::TensorView Parameter::*member) {
  const int64_t first = cut_.units()[unit].range.begin;
  for (const size_t index : trained_of_unit_.at(unit)) {
    Parameter& parameter = parameters_[index];
    std::byte* const at =
        memory == nullptr ? nullptr : memory + (parameter.offset_elems - first) * core::size_of(dtype);
    parameter.*member = core::TensorView(at, dtype, parameter.weight.shape());
  }
}

// Without its place.
Parameter ParameterStore::describe(const layout::ParameterSpec& spec) const {
  Parameter parameter;
  parameter.spec = spec;
  parameter.model_index = static_cast<size_t>(&spec - model_.data());
  const bool is_matrix = spec.global_shape.size() > 1;
  const bool decays = is_matrix || (state_.config.optimizer.apply_wd_to_qk_layernorm && ckpt::is_qk_norm(spec.key));
  parameter.group.wd_mult = decays ? 1 : 0;
  parameter.group.is_decoupled_lr = ckpt::is_embedding_or_output(spec.key);
  const bool replicated = spec.rule == layout::TpRule::kReplicated;
  parameter.grad_is_partial = layout::grad_is_partial(spec, state_.tp_size(), state_.sequence_parallel());
  const bool is_copy = spec.has_copy_behind && state_.groups.at.pp != 0;
  parameter.counts_in_norm = (!replicated || state_.tp_rank() == 0) && !is_copy;
  parameter.cut = layout::cut_of(spec, state_.groups.grid, state_.groups.world.rank());
  if (state_.config.training.packed_weights && is_matrix) {
    parameter.packed = std::make_unique<ops::PackedWeight>(weight_changes_);
  }
  parameter.weight = core::TensorView(nullptr, state_.config.params_dtype(),
                                      layout::local_shape(spec, state_.config.model, parameter.cut.size));
  return parameter;
}

Parameter* ParameterStore::find(std::string_view key) {
  for (Parameter& parameter : parameters_) {
    if (parameter.spec.key == key) return &parameter;
  }
  return nullptr;
}

const ModelBuffer* ParameterStore::find_buffer(std::string_view key) const {
  const auto found = std::ranges::find_if(buffers_, [&](const ModelBuffer& buffer) { return buffer.spec.key == key; });
  return found != buffers_.end() ? &*found : nullptr;
}

Parameter& ParameterStore::at(std::string_view key) {
  Parameter* found = find(key);
  MS_CHECK(found != nullptr, "stage ", state_.groups.at.pp, " does not hold ", key);
  return *found;
}

void ParameterStore::initialize(uint64_t seed,
                                const std::function<void(const Parameter&, const core::TensorView&)>& keep) {
  const core::TransformerConfig& config = state_.config.model;
  const double output_std = config.init_method_std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  for (Parameter& parameter : parameters_) {
    const layout::ParameterSpec& spec = parameter.spec;
    core::Tensor values =
        core::Tensor::zeros(state_.ops.arena, core::DType::kFp32, parameter.weight.shape(), core::MemoryTag::kTmp);
    float* out = values.data<float>();
    if (is_norm_weight(spec.key)) {
      std::fill_n(out, values.size(), config.apply_layernorm_1p ? 0.0F : 1.0F);
    } else if (ends_with(spec.key, "softmax_offset")) {
      const core::Rng rng(seed, spec.key);
      for (const layout::Box& box :
           layout::boxes_of_local_range(spec, config, parameter.cut.size, parameter.cut.rank, 0, values.size())) {
        for (int64_t i = 0; i < box.extent[0]; ++i)
          *out++ = static_cast<float>(config.init_method_std) * rng.normal(static_cast<uint64_t>(box.offset[0] + i));
      }
    } else if (spec.global_shape.size() > 1) {
      const bool output = ends_with(spec.key, "linear_proj.weight") || ends_with(spec.key, "linear_fc2.weight");
      const auto std = static_cast<float>(output ? output_std : config.init_method_std);
      const core::Rng rng(seed, spec.key);
      const int64_t columns = spec.global_shape[1];
      for (const layout::Box& box :
           layout::boxes_of_local_range(spec, config, parameter.cut.size, parameter.cut.rank, 0, values.size())) {
        state_.ops.pool.parallel_for(box.extent[0], 1, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            const int64_t first = (box.offset[0] + row) * columns + box.offset[1];
            for (int64_t c = 0; c < box.extent[1]; ++c) {
              out[row * box.extent[1] + c] = std * rng.normal(static_cast<uint64_t>(first + c));
            }
          }
        });
        out += box.extent[0] * box.extent[1];
      }
    }
    if (!parameter.trains() || !cut_.sharding().weights() || num_owners(parameter) == 1) {
      ops::cast_into(state_.ops, values, parameter.weight);
    } else if (const layout::FlatRange part = owned_part(parameter); part.begin < part.end) {
      const core::TensorView flat = values.view().reshaped({values.size()});
      ops::cast_into(state_.ops, flat.rows(part.begin - parameter.offset_elems, part.end - parameter.offset_elems),
                     owned_weights(part));
    }
    keep(parameter, values);
  }
  note_weight_change();
}

void ParameterStore::zero_grads() {
  int64_t begin = 0;
  const auto fill_until = [&](int64_t end) {
    if (begin < end) ops::fill_zero(state_.ops, grads_.view().rows(begin, end));
  };
  for (const layout::FlatRange& zeros : zeros_) {
    fill_until(zeros.begin);
    begin = std::max(begin, zeros.end);
  }
  fill_until(grads_.size());
  note_grads_are_used();
}

void ParameterStore::note_owned_grads_are_zero() {
  zeros_.clear();
  if (cut_.sharding().parts_of_state() > 1) {  // of the others' parts there are still this instance's sums
    for (const layout::BufferCut::Unit& unit : cut_.units()) {
      const layout::FlatRange block = cut_.state_block(unit, instance());
      const bool is_new = zeros_.empty() || zeros_.back().end <= block.begin;
      if (is_new && block.begin < block.end) zeros_.push_back(block);
    }
    return;
  }
  if (cut_.sharding().gradients()) return zeros_.push_back({0, grads_.size()});
  for (const layout::BufferCut::Unit& unit : cut_.units())
    zeros_.push_back(cut_.owned_block(unit, owners(unit).rank()));
}

}  // namespace ms::train
