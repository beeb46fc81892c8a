#include "train/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/trace/span.h"
#include "train/ops/optimizer.h"

namespace ms::train {
namespace {

using core::trace::Category;

std::span<float> slice(const core::TensorView& tensor, int64_t begin, int64_t end) {
  return tensor.elements<float>().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

}  // namespace

Optimizer::Optimizer(RankState& state, ParameterStore& parameters) : state_(state), parameters_(parameters) {
  const int64_t total = parameters.size_elems();
  const bool distributed = state.config.parallel.use_distributed_optimizer;
  const int64_t block = distributed ? total / state.groups.dp_cp.size() : total;
  begin_ = distributed ? block * state.groups.dp_cp.rank() : 0;
  end_ = begin_ + block;
  core::Arena& arena = state.ops.arena;
  if (state.config.training.bf16)
    master_ = core::Tensor::zeros(arena, core::DType::kFp32, {block}, core::MemoryTag::kMaster);
  exp_avg_ = core::Tensor::zeros(arena, core::DType::kFp32, {block}, core::MemoryTag::kOptim);
  exp_avg_sq_ = core::Tensor::zeros(arena, core::DType::kFp32, {block}, core::MemoryTag::kOptim);
}

Optimizer::Range Optimizer::owned_part(const Parameter& parameter) const {
  return {std::max(begin_, parameter.offset_elems), std::min(end_, parameter.offset_elems + parameter.size())};
}

void Optimizer::set_master(const Parameter& parameter, const core::TensorView& values) {
  const auto [begin, end] = owned_part(parameter);
  if (!master_.defined() || begin >= end) return;
  const float* source = values.data<float>() + (begin - parameter.offset_elems);
  std::copy_n(source, end - begin, master_.data<float>() + (begin - begin_));
}

void Optimizer::reduce_gradients() {
  core::ProcessGroups& groups = state_.groups;
  // A tied weight lives on two stages: embedding part first, then the output layer's (the order one stage adds them
  // in).
  if (groups.embedding && !state_.config.model.untie_embeddings_and_output_weights) {
    groups.embedding->allreduce(parameters_.at("embedding.word_embeddings.weight").main_grad);
  }
  std::vector<core::Work> partial;
  for (const Parameter& parameter : parameters_.all()) {
    if (parameter.grad_is_partial) partial.push_back(groups.tp.iallreduce(parameter.main_grad));
  }
  for (core::Work& work : partial) work.wait();
  if (groups.dp_cp.size() == 1) return;
  if (state_.config.parallel.use_distributed_optimizer) {
    groups.dp_cp.reduce_scatter(parameters_.grads(), parameters_.grads().rows(begin_, end_));
  } else {
    groups.dp_cp.allreduce(parameters_.grads());
  }
}

double Optimizer::gradient_norm() {
  std::vector<double> squares(parameters_.model().size(), 0.0);
  for (const Parameter& parameter : parameters_.all()) {
    if (!parameter.counts_in_norm) continue;
    const auto [begin, end] = owned_part(parameter);
    if (begin >= end) continue;
    const auto& model = parameters_.model();
    const auto index =
        std::find_if(model.begin(), model.end(), [&](const auto& spec) { return spec.key == parameter.spec.key; });
    squares[static_cast<size_t>(index - model.begin())] =
        ops::sum_of_squares(state_.ops, slice(parameters_.grads(), begin, end));
  }
  const bool distributed = state_.config.parallel.use_distributed_optimizer;
  core::Communicator& group = distributed ? state_.groups.world : state_.groups.model;
  if (group.size() > 1) group.allreduce(squares);
  double sum = 0;
  for (double square : squares) sum += square;
  return std::sqrt(sum);
}

void Optimizer::update(const Parameter& parameter, double lr, int64_t step, float grad_scale) {
  const auto [begin, end] = owned_part(parameter);
  if (begin >= end) return;
  const OptimizerConfig& config = state_.config.optimizer;
  ops::AdamwParameters p;
  p.lr = lr;
  p.beta1 = config.adam_beta1;
  p.beta2 = config.adam_beta2;
  p.eps = config.adam_eps;
  p.weight_decay = parameter.decays ? config.weight_decay : 0.0;
  p.grad_scale = grad_scale;
  p.step = step;
  std::span<kernels::bf16> weights_bf16;
  std::span<float> master;
  if (master_.defined()) {
    master = slice(master_, begin - begin_, end - begin_);
    weights_bf16 = parameters_.weights().elements<kernels::bf16>().subspan(static_cast<size_t>(begin),
                                                                           static_cast<size_t>(end - begin));
  } else {
    master = slice(parameters_.weights(), begin, end);
  }
  ops::adamw(state_.ops, master, slice(parameters_.grads(), begin, end), slice(exp_avg_, begin - begin_, end - begin_),
             slice(exp_avg_sq_, begin - begin_, end - begin_), p, weights_bf16);
}

Optimizer::StepResult Optimizer::step(double lr, int64_t step, double grad_scale) {
  core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "optimizer");
  reduce_gradients();
  const double norm = gradient_norm() * grad_scale;
  const double clip = state_.config.optimizer.clip_grad;
  double scale = grad_scale;
  if (clip > 0 && clip / (norm + 1e-6) < 1.0) scale *= clip / (norm + 1e-6);
  for (const Parameter& parameter : parameters_.all()) update(parameter, lr, step, static_cast<float>(scale));
  if (state_.config.parallel.use_distributed_optimizer && state_.groups.dp_cp.size() > 1) {
    state_.groups.dp_cp.allgather(parameters_.weights().rows(begin_, end_), parameters_.weights());
  }
  return {norm};
}

}  // namespace ms::train
