#include "train/optim/optimizer.h"

#include <algorithm>

#include "core/error.h"
#include "core/trace/span.h"
#include "kernels/bf16.h"
#include "train/model/gpt_stage.h"
#include "train/ops/elementwise.h"
#include "train/ops/optimizer.h"

namespace ms::train {
namespace {

using core::trace::Category;

std::span<float> slice(const core::TensorView& tensor, layout::FlatRange range) {
  return tensor.elements<float>().subspan(static_cast<size_t>(range.begin),
                                          static_cast<size_t>(range.end - range.begin));
}

Parameter* find_shared_embedding(const RankState& state, ParameterStore& parameters) {
  if (!state.groups.embedding || !layout::has_embedding_copy(state.config.model, state.layout())) return nullptr;
  Parameter& embedding = parameters.at("embedding.word_embeddings.weight");
  return embedding.trains() ? &embedding : nullptr;
}

// Whether there are fp32 master weights besides the weights, as a whole.
bool keeps_master(const TrainerConfig& config) {
  return config.params_dtype() != core::DType::kFp32 && !config.optimizer.reuse_fp32_param;
}

std::vector<core::TensorRole> roles_in_memory(const TrainerConfig& config) {
  std::vector<core::TensorRole> roles = optimizer_state_roles(config.optimizer);
  if (keeps_master(config)) roles.insert(roles.begin(), core::TensorRole::kMaster);
  return roles;
}

}  // namespace

Optimizer::Optimizer(RankState& state, ParameterStore& parameters)
    : state_(state),
      parameters_(parameters),
      buckets_(state, parameters),
      sums_(state, parameters),
      has_master_(keeps_master(state.config)),
      memory_(state.ops.arena, roles_in_memory(state.config), parameters.cut().state_size()),
      rule_(make_update_rule(state, memory_, has_master_ ? 1 : 0)),
      shared_embedding_(find_shared_embedding(state, parameters)) {
  if (!state.config.optimizer.reuse_fp32_param) return;
  constexpr uint16_t kRestOfZero = 0x8000;  // the vocabulary's padding, which no checkpoint has, stays 0
  const int64_t owned = parameters.cut().state_size();
  master_rest_ = core::Tensor(state.ops.arena, core::DType::kUInt16, {owned}, core::MemoryTag::kMaster);
  std::ranges::fill(std::span(reinterpret_cast<uint16_t*>(master_rest_.bytes()), static_cast<size_t>(owned)),
                    kRestOfZero);
}

void Optimizer::follow(GptStage& stage) {
  if (!state_.config.parallel.overlap_grad_reduce && !parameters_.cut().sharding().gradients()) return;
  buckets_.follow_stage();
  stage.set_parameter_observer(&buckets_);
}

core::TensorView Optimizer::master() const {
  if (master_rest_.defined()) return parameters_.grads().rows(0, parameters_.cut().state_size());
  return has_master_ ? memory_.whole(0) : core::TensorView();
}

std::vector<OptimizerState> Optimizer::state() const {
  std::vector<OptimizerState> all;
  if (master_rest_.defined()) all.push_back({core::TensorRole::kMaster, master()});
  for (size_t i = 0; i < memory_.roles().size(); ++i) all.push_back({memory_.roles()[i], memory_.whole(i)});
  return all;
}

std::span<float> Optimizer::owned_master(layout::FlatRange part) const {
  const layout::FlatRange place = parameters_.state_place(part);
  return memory_.of(0, place.begin, place.end);
}

void Optimizer::set_master(const Parameter& parameter, const core::TensorView& values) {
  const layout::FlatRange part = parameters_.state_part(parameter);
  if (part.begin >= part.end) return;
  const std::span<float> owned =
      slice(values.reshaped({values.size()}), {part.begin - parameter.offset_elems, part.end - parameter.offset_elems});
  if (master_rest_.defined()) {
    ops::split_master(state_.ops, owned, shared_master(part), marks(part));
  } else if (has_master_) {
    std::ranges::copy(owned, owned_master(part).begin());
  }
}

ops::SharedMaster Optimizer::shared_master(layout::FlatRange part) const {
  const int64_t begin = parameters_.state_place(part).begin;
  return {parameters_.owned_weights(part).elements<kernels::bf16>(),
          {reinterpret_cast<uint16_t*>(master_rest_.bytes()) + begin, static_cast<size_t>(part.end - part.begin)}};
}

std::span<float> Optimizer::marks(layout::FlatRange part) const {
  const layout::FlatRange place = parameters_.state_place(part);
  return rule_->unsigned_state(place.begin, place.end);
}

std::span<float> Optimizer::joined(layout::FlatRange part) const {
  return slice(parameters_.grads(), parameters_.state_place(part));
}

void Optimizer::join_master() {
  if (!master_rest_.defined() || joined_) return;
  joined_ = true;
  for (const Parameter& parameter : parameters_.all()) {
    const layout::FlatRange part = parameters_.state_part(parameter);
    if (part.begin >= part.end) continue;
    ops::join_master(state_.ops, shared_master(part), marks(part), joined(part));
  }
  parameters_.note_grads_are_used();
}

void Optimizer::split_master() {
  if (!joined_) return;
  joined_ = false;
  for (const Parameter& parameter : parameters_.all()) {
    const layout::FlatRange part = parameters_.state_part(parameter);
    if (part.begin >= part.end) continue;
    ops::split_master(state_.ops, joined(part), shared_master(part), marks(part));
  }
}

void Optimizer::hold_state() {
  memory_.hold();
  join_master();
}

void Optimizer::release_state(bool is_changed) {
  split_master();
  memory_.release(is_changed);
}

void Optimizer::share_weights() {
  buckets_.gather_weights();
  buckets_.await_all_weights();
}

double Optimizer::params_norm() {
  if (has_master_) return sums_.params_norm([&](layout::FlatRange part) { return owned_master(part); });
  if (state_.config.params_dtype() != core::DType::kFp32) return sums_.weights_norm();
  return sums_.params_norm([&](layout::FlatRange part) { return parameters_.owned_weights(part).elements<float>(); });
}

void Optimizer::add_part(const Parameter& parameter, const StepFactors& factors, float scale,
                         layout::FlatRange with_state) {
  layout::FlatRange owned = parameters_.state_part(parameter);
  if (owned.begin >= owned.end) return;
  layout::FlatRange place = parameters_.state_place(owned);
  const int64_t offset = owned.begin - place.begin;
  place = {std::max(place.begin, with_state.begin), std::min(place.end, with_state.end)};
  if (place.begin >= place.end) return;
  owned = {place.begin + offset, place.end + offset};
  const ParameterGroup& group = parameter.group;
  const double lr = group.is_decoupled_lr ? factors.decoupled_lr.value_or(factors.lr) : factors.lr;
  UpdateRule::Part& part = parts_.emplace_back();
  part.begin = place.begin, part.end = place.end;
  part.grads = parameters_.owned_grads(owned).elements<float>();
  part.factors = {.lr = lr * group.lr_mult,
                  .weight_decay = factors.weight_decay * group.wd_mult,
                  .step = factors.step,
                  .grad_scale = scale};
  if (master_rest_.defined()) {
    part.shared = shared_master(owned);
    return;
  }
  const core::TensorView weights = parameters_.owned_weights(owned);
  part.master = has_master_ ? memory_.of(0, place.begin, place.end) : weights.elements<float>();
  if (weights.dtype() == core::DType::kBf16) part.bf16 = weights.elements<kernels::bf16>();
  if (weights.dtype() == core::DType::kFp16) to_round_.push_back(weights);
}

void Optimizer::update_parts() {
  rule_->update(parts_);
  for (size_t i = 0; i < to_round_.size(); ++i) {
    const core::TensorView master(parts_[i].master.data(), core::DType::kFp32, to_round_[i].shape());
    ops::cast_into(state_.ops, master, to_round_[i]);
  }
  parts_.clear();
  to_round_.clear();
}

core::TensorView Optimizer::shared_embedding_gradient() const {
  const layout::BufferCut& cut = parameters_.cut();
  if (!cut.sharding().gradients() || parameters_.num_owners(*shared_embedding_) == 1)
    return shared_embedding_->main_grad;
  const layout::BufferCut::Unit& unit = parameters_.unit_of(*shared_embedding_);
  return parameters_.owned_grads(cut.owned_block(unit, parameters_.owners(unit).rank()));
}

double Optimizer::finish_gradients(double grad_scale) {
  core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "finish-gradients");
  // A tied weight lives on two stages: embedding part first, then the output layer's (the order one stage adds them
  // in). From ZeRO-2 on both are sums over the replicas of an instance already.
  const bool is_reduced = parameters_.cut().sharding().gradients();
  if (is_reduced) buckets_.finish_reduction();
  if (shared_embedding_ != nullptr) state_.groups.embedding->allreduce(shared_embedding_gradient());
  if (!is_reduced) buckets_.finish_reduction();
  buckets_.sum_over_instances();
  return grad_scale *
         sums_.norm([&](layout::FlatRange part) { return parameters_.owned_grads(part).elements<float>(); });
}

void Optimizer::update(const StepFactors& factors) {
  MS_CHECK(!joined_, "an update while the master weights are in the gradients' memory");
  core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "optimizer");
  buckets_.await_all_weights();  // of the update before
  const double clip = state_.config.optimizer.clip_grad;
  double scale = factors.grad_scale;
  if (clip > 0 && clip / (factors.grad_norm + 1e-6) < 1.0) scale *= clip / (factors.grad_norm + 1e-6);
  if (buckets_.gathers_while_updating()) {  // --swap-optimizer excludes it
    memory_.update([&](layout::FlatRange all) {
      for (Bucket& bucket : buckets_.in_order_of_forward()) {
        for (const Parameter* parameter : bucket.parameters)
          add_part(*parameter, factors, static_cast<float>(scale), all);
        update_parts();
        buckets_.gather_weights(bucket);
      }
    });
  } else {
    memory_.update([&](layout::FlatRange chunk) {
      for (const Parameter& parameter : parameters_.all())
        add_part(parameter, factors, static_cast<float>(scale), chunk);
      update_parts();
    });
    buckets_.gather_weights();
  }
  memory_.finish_update();
  parameters_.note_owned_grads_are_zero();
  parameters_.note_weight_change();
}

}  // namespace ms::train
