#include "train/optim/optimizer.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/error.h"
#include "core/layout/sharding.h"
#include "core/trace/span.h"
#include "kernels/bf16.h"
#include "train/ops/elementwise.h"
#include "train/ops/optimizer.h"

namespace ms::train {
namespace {

using core::trace::Category;

std::span<float> slice(const core::TensorView& tensor, int64_t begin, int64_t end) {
  return tensor.elements<float>().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

}  // namespace

Optimizer::Optimizer(RankState& state, ParameterStore& parameters)
    : state_(state),
      parameters_(parameters),
      sums_embedding_copies_(state.groups.embedding && layout::has_embedding_copy(state.config.model, state.layout())) {
  const int64_t total = parameters.size_elems();
  const bool distributed = state.config.parallel.use_distributed_optimizer;
  const core::Communicator& replicas = state.groups.dp_cp;
  const auto [begin, end] =
      distributed ? layout::block_of_buffer(total, replicas.size(), replicas.rank()) : layout::FlatRange{0, total};
  begin_ = begin;
  end_ = end;
  const int64_t block = end - begin;
  core::Arena& arena = state.ops.arena;
  if (state.config.optimizer.reuse_fp32_param) {
    constexpr uint16_t kRestOfZero = 0x8000;  // the vocabulary's padding, which no checkpoint has, stays 0
    master_rest_ = core::Tensor(arena, core::DType::kUInt16, {block}, core::MemoryTag::kMaster);
    std::ranges::fill(shared_master(begin_, end_).rest, kRestOfZero);
  } else if (state.config.params_dtype() != core::DType::kFp32) {
    master_ = core::Tensor::zeros(arena, core::DType::kFp32, {block}, core::MemoryTag::kMaster);
  }
  exp_avg_ = core::Tensor::zeros(arena, core::DType::kFp32, {block}, core::MemoryTag::kOptim);
  exp_avg_sq_ = core::Tensor::zeros(arena, core::DType::kFp32, {block}, core::MemoryTag::kOptim);
}

Optimizer::Range Optimizer::owned_part(const Parameter& parameter) const {
  return {std::max(begin_, parameter.offset_elems), std::min(end_, parameter.offset_elems + parameter.size())};
}

void Optimizer::set_master(const Parameter& parameter, const core::TensorView& values) {
  const auto [begin, end] = owned_part(parameter);
  if (begin >= end) return;
  const std::span<float> owned =
      slice(values.reshaped({values.size()}), begin - parameter.offset_elems, end - parameter.offset_elems);
  if (master_rest_.defined()) {
    ops::split_master(state_.ops, owned, shared_master(begin, end), slice(exp_avg_sq_, begin - begin_, end - begin_));
  } else if (master_.defined()) {
    std::copy(owned.begin(), owned.end(), master_.data<float>() + (begin - begin_));
  }
}

ops::SharedMaster Optimizer::shared_master(int64_t begin, int64_t end) const {
  return {parameters_.weights().rows(begin, end).elements<kernels::bf16>(),
          {reinterpret_cast<uint16_t*>(master_rest_.bytes()) + (begin - begin_), static_cast<size_t>(end - begin)}};
}

void Optimizer::join_master() {
  if (!master_rest_.defined() || joined_) return;
  joined_ = true;
  for (const Parameter& parameter : parameters_.all()) {
    const auto [begin, end] = owned_part(parameter);
    if (begin >= end) continue;
    ops::join_master(state_.ops, shared_master(begin, end), slice(exp_avg_sq_, begin - begin_, end - begin_),
                     slice(parameters_.grads(), begin, end));
  }
  parameters_.note_zero_grads(0, 0);
}

void Optimizer::split_master() {
  if (!joined_) return;
  joined_ = false;
  for (const Parameter& parameter : parameters_.all()) {
    const auto [begin, end] = owned_part(parameter);
    if (begin >= end) continue;
    ops::split_master(state_.ops, slice(parameters_.grads(), begin, end), shared_master(begin, end),
                      slice(exp_avg_sq_, begin - begin_, end - begin_));
  }
}

void Optimizer::share_weights() {
  if (!state_.config.parallel.use_distributed_optimizer || state_.groups.dp_cp.size() == 1) return;
  state_.groups.dp_cp.allgather(parameters_.weights().rows(begin_, end_), parameters_.weights());
}

void Optimizer::reduce_gradients() {
  ProcessGroups& groups = state_.groups;
  // A tied weight lives on two stages: embedding part first, then the output layer's (the order one stage adds them
  // in).
  if (sums_embedding_copies_) {
    groups.embedding->allreduce(parameters_.at("embedding.word_embeddings.weight").main_grad);
  }
  reduce_partial_gradients();
  if (groups.dp_cp.size() == 1) return;
  if (state_.config.parallel.use_distributed_optimizer) {
    groups.dp_cp.reduce_scatter(parameters_.grads(), parameters_.grads().rows(begin_, end_));
  } else {
    groups.dp_cp.allreduce(parameters_.grads());
  }
}

// All in one message, as Megatron's _allreduce_layernorm_grads: most of them are small.
void Optimizer::reduce_partial_gradients() {
  int64_t total = 0;
  for (const Parameter& parameter : parameters_.all()) total += parameter.grad_is_partial ? parameter.size() : 0;
  if (total == 0) return;
  const core::Tensor all(state_.ops.arena, core::DType::kFp32, {total}, core::MemoryTag::kComm);
  const auto for_each_part = [&](const auto& body) {
    int64_t begin = 0;
    for (const Parameter& parameter : parameters_.all()) {
      if (!parameter.grad_is_partial) continue;
      body(slice(all, begin, begin + parameter.size()), parameter.main_grad.elements<float>());
      begin += parameter.size();
    }
  };
  for_each_part([](std::span<float> part, std::span<float> gradient) { std::ranges::copy(gradient, part.begin()); });
  state_.groups.tp.allreduce(all.view());
  for_each_part([](std::span<float> part, std::span<float> gradient) { std::ranges::copy(part, gradient.begin()); });
}

void Optimizer::for_each_counted(core::FunctionRef<void(const Parameter&, Range)> body) const {
  for (const Parameter& parameter : parameters_.all()) {
    const Range part = owned_part(parameter);
    if (parameter.counts_in_norm && part.begin < part.end) body(parameter, part);
  }
}

double Optimizer::sum_over_model() {
  if (state_.config.parallel.use_distributed_optimizer && state_.groups.dp_cp.size() > 1) {
    state_.groups.dp_cp.allreduce(sums_);
  }
  if (state_.groups.model.size() > 1) state_.groups.model.allreduce(sums_);
  double sum = 0;
  for (double of_parameter : sums_) sum += of_parameter;
  return sum;
}

double Optimizer::norm_over_model(core::FunctionRef<std::span<const float>(Range)> values) {
  counted_.clear();
  for_each_counted([&](const Parameter&, Range part) { counted_.push_back(values(part)); });
  squares_.resize(counted_.size());
  ops::sums_of_squares(state_.ops, counted_, squares_);
  clear_sums();
  size_t next = 0;
  for_each_counted([&](const Parameter& parameter, Range) { sums_[parameter.model_index] = squares_[next++]; });
  return std::sqrt(sum_over_model());
}

double Optimizer::gradient_norm() {
  return norm_over_model([&](Range part) { return slice(parameters_.grads(), part.begin, part.end); });
}

double Optimizer::num_zeros() {
  constexpr int64_t kGrain = 1 << 14;
  clear_sums();
  for_each_counted([&](const Parameter& parameter, Range part) {
    const std::span<const float> grads = slice(parameters_.grads(), part.begin, part.end);
    std::atomic<int64_t> zeros{0};
    state_.ops.pool.parallel_for(part.end - part.begin, kGrain, [&](int64_t first, int64_t last) {
      const auto some = grads.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
      zeros += std::count(some.begin(), some.end(), 0.0F);
    });
    sums_[parameter.model_index] = static_cast<double>(zeros.load());
  });
  return sum_over_model();
}

double Optimizer::params_norm() {
  if (master_.defined())
    return norm_over_model([&](Range part) { return slice(master_, part.begin - begin_, part.end - begin_); });
  if (state_.config.params_dtype() == core::DType::kFp32)
    return norm_over_model([&](Range part) { return slice(parameters_.weights(), part.begin, part.end); });
  clear_sums();
  for_each_counted([&](const Parameter& parameter, Range part) {
    double sum = 0;
    for (const kernels::bf16 weight : parameters_.weights().rows(part.begin, part.end).elements<kernels::bf16>()) {
      const double value = kernels::to_float(weight);
      sum += value * value;
    }
    sums_[parameter.model_index] = sum;
  });
  return std::sqrt(sum_over_model());
}

void Optimizer::update_parameter(const Parameter& parameter, const StepFactors& factors, float scale) {
  const auto [begin, end] = owned_part(parameter);
  if (begin >= end) return;
  const OptimizerConfig& config = state_.config.optimizer;
  ops::AdamwParameters p;
  p.lr = parameter.is_embedding_or_output ? factors.decoupled_lr.value_or(factors.lr) : factors.lr;
  p.beta1 = config.adam_beta1;
  p.beta2 = config.adam_beta2;
  p.eps = config.adam_eps;
  p.weight_decay = parameter.decays ? factors.weight_decay : 0.0;
  p.grad_scale = scale;
  p.step = factors.step;
  if (master_rest_.defined()) {
    ops::adamw(state_.ops, shared_master(begin, end), slice(parameters_.grads(), begin, end),
               slice(exp_avg_, begin - begin_, end - begin_), slice(exp_avg_sq_, begin - begin_, end - begin_), p);
    return;
  }
  const core::TensorView weights = parameters_.weights().rows(begin, end);
  const bool bf16 = weights.dtype() == core::DType::kBf16;
  const core::TensorView master = master_.defined() ? master_.view().rows(begin - begin_, end - begin_) : weights;
  ops::adamw(state_.ops, master.elements<float>(), slice(parameters_.grads(), begin, end),
             slice(exp_avg_, begin - begin_, end - begin_), slice(exp_avg_sq_, begin - begin_, end - begin_), p,
             bf16 ? weights.elements<kernels::bf16>() : std::span<kernels::bf16>());
  if (master_.defined() && !bf16) ops::cast_into(state_.ops, master, weights);
}

double Optimizer::finish_gradients(double grad_scale) {
  core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "finish-gradients");
  reduce_gradients();
  return gradient_norm() * grad_scale;
}

void Optimizer::update(const StepFactors& factors) {
  MS_CHECK(!joined_, "an update while the master weights are in the gradients' memory");
  core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "optimizer");
  const double clip = state_.config.optimizer.clip_grad;
  double scale = factors.grad_scale;
  if (clip > 0 && clip / (factors.grad_norm + 1e-6) < 1.0) scale *= clip / (factors.grad_norm + 1e-6);
  for (const Parameter& parameter : parameters_.all()) update_parameter(parameter, factors, static_cast<float>(scale));
  parameters_.note_zero_grads(begin_, end_);
  share_weights();
  parameters_.note_weight_change();
}

}  // namespace ms::train
