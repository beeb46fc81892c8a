#include "train/model/linear.h"

#include <cstring>
#include <optional>
#include <utility>

#include "train/ops/elementwise.h"
#include "train/ops/linear.h"

namespace ms::train {
namespace {

const core::TensorView* weight_of(const Parameter* parameter) {
  return parameter == nullptr ? nullptr : &parameter->weight;
}

}  // namespace

Linear::Linear(RankState& state, ParameterStore& parameters, const std::string& name)
    : state_(state),
      weight_(parameters.at(name + ".weight")),
      bias_(parameters.find(name + ".bias")),
      precision_(state, weight_) {}

ColumnParallelLinear::ColumnParallelLinear(RankState& state, ParameterStore& parameters, const std::string& name)
    : Linear(state, parameters, name) {}

core::Tensor ColumnParallelLinear::forward(const core::TensorView& x) {
  if (state_.sequence_parallel()) {
    const SequenceParts parts = sequence_parts(state_, x.dim(0) * state_.tp_size(), x.dim(1));
    if (parts.parts() > 1) return forward_in_parts(x, parts);
  }
  core::Tensor y;
  SequenceGather(state_, x).for_whole(
      [&](const core::TensorView& full) { y = precision_.forward(full, {.bias = weight_of(bias_)}); });
  return y;
}

// The rows of other ranks arrive, in parts, while the product of this rank's own, and of the parts before, is computed.
core::Tensor ColumnParallelLinear::forward_in_parts(const core::TensorView& x, const SequenceParts& parts) {
  SequenceGather gather(state_, x, parts);
  const core::Dims shape = {x.dim(0) * state_.tp_size(), x.dim(1), weight_.weight.dim(0)};
  core::Tensor y(state_.ops.arena, x.dtype(), shape, core::MemoryTag::kAct);
  LinearPrecision::Parts products(precision_, parts.piece() * x.dim(1));
  products.forward_into(x, parts.block(y, state_.tp_rank()), {.bias = weight_of(bias_)});
  gather.for_each_piece([&](int64_t part, int64_t block, const core::TensorView& piece) {
    products.forward_into(piece, parts.in_sequence(y, part, block), {.bias = weight_of(bias_)});
  });
  return y;
}

PartialSum ColumnParallelLinear::start_backward(core::Tensor dy, core::Tensor x, WeightGradients& weights) {
  if (tensor_overlap(state_.config).backward) return start_overlapped_backward(std::move(dy), std::move(x), weights);
  weights.add(*this, std::move(x), dy.share());
  return start_backward_input(std::move(dy));
}

// The gather of x is under way beside the gradient of x, and its sum beside the gradient of the weight.
PartialSum ColumnParallelLinear::start_overlapped_backward(core::Tensor dy, core::Tensor x, WeightGradients& weights) {
  const bool gathers = state_.sequence_parallel() && weight_.trains() && !weights.is_deferred();
  SequenceGather gather;
  if (gathers) gather = SequenceGather(state_, x, {state_, dy.dim(0), 1});
  PartialSum sum(state_, precision_.backward_input(dy));
  if (gathers) {
    gather.for_whole([&](const core::TensorView& full) {
      sum.start();
      add_gradients(full, dy);
    });
    return sum;
  }
  sum.start();
  if (weights.is_deferred()) {
    weights.add(*this, std::move(x), std::move(dy));
  } else {
    add_gradients(x, dy);
  }
  return sum;
}

PartialSum ColumnParallelLinear::start_backward_input(core::Tensor dy) {
  core::Tensor dx = precision_.backward_input(dy);
  return {state_, std::move(dx)};
}

void ColumnParallelLinear::backward_weight(const core::TensorView& x, const core::TensorView& dy) {
  if (!weight_.trains()) return add_gradients(x, dy);
  // Only this rank's part of the sequence was saved: one more all-gather.
  SequenceGather(state_, x).for_whole([&](const core::TensorView& full) { add_gradients(full, dy); });
}

void ColumnParallelLinear::add_gradients(const core::TensorView& full, const core::TensorView& dy) {
  if (weight_.trains()) precision_.backward_weight(full, dy);
  if (bias_trains()) ops::bias_grad(state_.ops, dy, bias_->main_grad);
}

core::Tensor ColumnParallelLinear::forward_rows(const core::TensorView& x) { return precision_.forward_fp32(x); }

core::Tensor ColumnParallelLinear::backward_rows(const core::TensorView& x, const core::TensorView& dy) {
  if (weight_.trains()) precision_.backward_weight(x, dy);
  return precision_.backward_input(dy);
}

RowParallelLinear::RowParallelLinear(RankState& state, ParameterStore& parameters, const std::string& name)
    : Linear(state, parameters, name) {}

PartialSum RowParallelLinear::start_forward(const core::TensorView& x, const core::TensorView* residual) {
  if (state_.tp_size() == 1) return {precision_.forward(x, {.bias = weight_of(bias_), .residual = residual})};
  const SequenceParts parts = sequence_parts(state_, x.dim(0), x.dim(1));
  std::optional<core::TensorView> added;  // by the sum, unless a bias comes first
  if (residual != nullptr && bias_ == nullptr) added = *residual;
  if (parts.parts() == 1) return {state_, precision_.forward(x, {}), added};
  LinearPrecision::Parts products(precision_, parts.piece() * x.dim(1));
  return {state_,
          {x.dim(0), x.dim(1), weight_.weight.dim(0)},
          x.dtype(),
          parts,
          [&](int64_t part, int64_t block, const core::TensorView& y) {
            products.forward_into(parts.in_sequence(x, part, block), y, {});
          },
          added};
}

core::Tensor RowParallelLinear::finish_forward(PartialSum sum, const core::TensorView* residual) {
  ops::Context& ops = state_.ops;
  core::Tensor y = sum.take();
  if (state_.tp_size() == 1 || bias_ == nullptr) return y;  // the product or the sum has added what there is
  ops::add_bias_inplace(ops, y, bias_->weight);
  if (residual != nullptr) ops::add_inplace(ops, y, *residual);
  return y;
}

core::Tensor RowParallelLinear::backward(core::Tensor& dy, core::Tensor x, WeightGradients& weights) {
  if (!state_.sequence_parallel()) {
    weights.add(*this, std::move(x), dy.share());
    return backward_input(dy);
  }
  if (tensor_overlap(state_.config).multiplies_own_first(dy.dim(0), dy.dim(1))) {
    const SequenceParts parts = sequence_parts(state_, x.dim(0), x.dim(1));
    return backward_in_parts(dy, parts, std::move(x), weights);
  }
  SequenceGather gather(state_, dy);
  core::Tensor dx;
  gather.for_whole([&](const core::TensorView& full) {
    weights.add(*this, std::move(x), gather.share());
    dx = backward_input(full);
  });
  return dx;
}

// As forward_in_parts(). For the weight's gradient the rows of dy are put in order, unless they were gathered at once.
core::Tensor RowParallelLinear::backward_in_parts(const core::TensorView& dy, const SequenceParts& parts,
                                                  core::Tensor x, WeightGradients& weights) {
  SequenceGather gather(state_, dy, parts);
  core::Tensor full;
  if (parts.parts() > 1) {
    core::Dims shape = dy.shape();
    shape[0] = x.dim(0);
    full = core::Tensor(state_.ops.arena, dy.dtype(), shape, core::MemoryTag::kAct);
  }
  const auto put = [](const core::TensorView& rows, const core::TensorView& place) {
    std::memcpy(place.bytes(), rows.bytes(), static_cast<size_t>(rows.size_bytes()));
  };
  core::Tensor dx(state_.ops.arena, dy.dtype(), x.shape(), core::MemoryTag::kAct);
  if (full.defined()) put(dy, parts.block(full, state_.tp_rank()));
  precision_.backward_input_into(dy, parts.block(dx, state_.tp_rank()));
  gather.for_each_piece([&](int64_t part, int64_t block, const core::TensorView& piece) {
    if (full.defined()) put(piece, parts.in_sequence(full, part, block));
    precision_.backward_input_into(piece, parts.in_sequence(dx, part, block));
  });
  if (!full.defined()) full = gather.share();
  gather = {};
  weights.add(*this, std::move(x), std::move(full));
  return dx;
}

core::Tensor RowParallelLinear::backward_input(const core::TensorView& dy) { return precision_.backward_input(dy); }

void RowParallelLinear::backward_weight(const core::TensorView& x, const core::TensorView& dy) {
  if (weight_.trains()) precision_.backward_weight(x, dy);
  if (!bias_trains()) return;
  // With SP each rank adds up its part of the sequence; the parts are summed as for every replicated parameter.
  const int64_t positions = state_.sequence_parallel() ? dy.dim(0) / state_.tp_size() : dy.dim(0);
  const int64_t first = state_.sequence_parallel() ? state_.tp_rank() * positions : 0;
  ops::bias_grad(state_.ops, dy.rows(first, first + positions), bias_->main_grad);
}

}  // namespace ms::train
