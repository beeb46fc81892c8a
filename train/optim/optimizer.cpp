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

std::span<float> slice(const core::TensorView& tensor, int64_t begin, int64_t end) {
  return tensor.elements<float>().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

Parameter* find_shared_embedding(const RankState& state, ParameterStore& parameters) {
  if (!state.groups.embedding || !layout::has_embedding_copy(state.config.model, state.layout())) return nullptr;
  Parameter& embedding = parameters.at("embedding.word_embeddings.weight");
  return embedding.trains() ? &embedding : nullptr;
}

}  // namespace

Optimizer::Optimizer(RankState& state, ParameterStore& parameters)
    : state_(state),
      parameters_(parameters),
      buckets_(state, parameters),
      sums_(state, parameters, buckets_.owned()),
      shared_embedding_(find_shared_embedding(state, parameters)) {
  const int64_t owned = buckets_.owned().size();
  core::Arena& arena = state.ops.arena;
  if (state.config.optimizer.reuse_fp32_param) {
    constexpr uint16_t kRestOfZero = 0x8000;  // the vocabulary's padding, which no checkpoint has, stays 0
    master_rest_ = core::Tensor(arena, core::DType::kUInt16, {owned}, core::MemoryTag::kMaster);
    std::fill_n(reinterpret_cast<uint16_t*>(master_rest_.bytes()), owned, kRestOfZero);
  } else if (state.config.params_dtype() != core::DType::kFp32) {
    master_ = core::Tensor::zeros(arena, core::DType::kFp32, {owned}, core::MemoryTag::kMaster);
  }
  rule_ = make_update_rule(state, owned);
}

void Optimizer::follow(GptStage& stage) {
  if (!state_.config.parallel.overlap_grad_reduce) return;
  buckets_.follow_stage();
  stage.set_parameter_observer(&buckets_);
}

core::TensorView Optimizer::master() const {
  if (master_rest_.defined()) return parameters_.grads().rows(0, buckets_.owned().size());
  return master_;
}

std::vector<OptimizerState> Optimizer::state() const {
  std::vector<OptimizerState> all;
  if (const core::TensorView values = master(); values.defined()) all.push_back({core::TensorRole::kMaster, values});
  all.insert(all.end(), rule_->state().begin(), rule_->state().end());
  return all;
}

void Optimizer::set_master(const Parameter& parameter, const core::TensorView& values) {
  const auto [begin, end] = buckets_.owned().part_of(parameter);
  if (begin >= end) return;
  const std::span<float> owned =
      slice(values.reshaped({values.size()}), begin - parameter.offset_elems, end - parameter.offset_elems);
  if (master_rest_.defined()) {
    ops::split_master(state_.ops, owned, shared_master(begin, end), marks(begin, end));
  } else if (master_.defined()) {
    std::copy(owned.begin(), owned.end(), master_.data<float>() + state_index(begin));
  }
}

ops::SharedMaster Optimizer::shared_master(int64_t begin, int64_t end) const {
  return {parameters_.weights().rows(begin, end).elements<kernels::bf16>(),
          {reinterpret_cast<uint16_t*>(master_rest_.bytes()) + state_index(begin), static_cast<size_t>(end - begin)}};
}

std::span<float> Optimizer::marks(int64_t begin, int64_t end) const {
  return rule_->unsigned_state(state_index(begin), state_index(begin) + end - begin);
}

std::span<float> Optimizer::joined(int64_t begin, int64_t end) const {
  return slice(parameters_.grads(), state_index(begin), state_index(begin) + end - begin);
}

void Optimizer::join_master() {
  if (!master_rest_.defined() || joined_) return;
  joined_ = true;
  for (const Parameter& parameter : parameters_.all()) {
    const auto [begin, end] = buckets_.owned().part_of(parameter);
    if (begin >= end) continue;
    ops::join_master(state_.ops, shared_master(begin, end), marks(begin, end), joined(begin, end));
  }
  parameters_.note_zero_grads({});
}

void Optimizer::split_master() {
  if (!joined_) return;
  joined_ = false;
  for (const Parameter& parameter : parameters_.all()) {
    const auto [begin, end] = buckets_.owned().part_of(parameter);
    if (begin >= end) continue;
    ops::split_master(state_.ops, joined(begin, end), shared_master(begin, end), marks(begin, end));
  }
}

void Optimizer::share_weights() {
  buckets_.gather_weights();
  buckets_.await_all_weights();
}

double Optimizer::params_norm() {
  if (master_.defined()) {
    return sums_.params_norm([&](layout::FlatRange part) {
      return slice(master_, state_index(part.begin), state_index(part.begin) + part.end - part.begin);
    });
  }
  if (state_.config.params_dtype() != core::DType::kFp32) return sums_.weights_norm();
  return sums_.params_norm([&](layout::FlatRange part) { return slice(parameters_.weights(), part.begin, part.end); });
}

void Optimizer::update_parameter(const Parameter& parameter, const StepFactors& factors, float scale) {
  const auto [begin, end] = buckets_.owned().part_of(parameter);
  if (begin >= end) return;
  const ParameterGroup& group = parameter.group;
  const double lr = group.is_decoupled_lr ? factors.decoupled_lr.value_or(factors.lr) : factors.lr;
  const UpdateRule::Factors rule_factors{.lr = lr * group.lr_mult,
                                         .weight_decay = factors.weight_decay * group.wd_mult,
                                         .step = factors.step,
                                         .grad_scale = scale};
  const int64_t first = state_index(begin), last = first + end - begin;
  UpdateRule::Part part{.begin = first, .end = last, .grads = slice(parameters_.grads(), begin, end)};
  if (master_rest_.defined()) {
    part.shared = shared_master(begin, end);
    return rule_->update(part, rule_factors);
  }
  const core::TensorView weights = parameters_.weights().rows(begin, end);
  const bool bf16 = weights.dtype() == core::DType::kBf16;
  const core::TensorView master = master_.defined() ? master_.view().rows(first, last) : weights;
  part.master = master.elements<float>();
  if (bf16) part.bf16 = weights.elements<kernels::bf16>();
  rule_->update(part, rule_factors);
  if (master_.defined() && !bf16) ops::cast_into(state_.ops, master, weights);
}

double Optimizer::finish_gradients(double grad_scale) {
  core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "finish-gradients");
  // A tied weight lives on two stages: embedding part first, then the output layer's (the order one stage adds them
  // in).
  if (shared_embedding_ != nullptr) state_.groups.embedding->allreduce(shared_embedding_->main_grad);
  buckets_.finish_reduction();
  return grad_scale *
         sums_.norm([&](layout::FlatRange part) { return slice(parameters_.grads(), part.begin, part.end); });
}

void Optimizer::update(const StepFactors& factors) {
  MS_CHECK(!joined_, "an update while the master weights are in the gradients' memory");
  core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "optimizer");
  buckets_.await_all_weights();  // of the update before
  const double clip = state_.config.optimizer.clip_grad;
  double scale = factors.grad_scale;
  if (clip > 0 && clip / (factors.grad_norm + 1e-6) < 1.0) scale *= clip / (factors.grad_norm + 1e-6);
  for (const Parameter& parameter : parameters_.all()) update_parameter(parameter, factors, static_cast<float>(scale));
  parameters_.note_zero_grads(buckets_.owned().ranges());
  buckets_.gather_weights();
  parameters_.note_weight_change();
}

}  // namespace ms::train
