#include "train/model/loss.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "train/model/embedding.h"
#include "train/ops/activation.h"
#include "train/ops/cross_entropy.h"
#include "train/ops/elementwise.h"
#include "train/ops/linear.h"
#include "train/parallel/mappings.h"

namespace ms::train {
namespace {

core::TensorView view(std::vector<float>& values) {
  return core::TensorView(values.data(), core::DType::kFp32, {static_cast<int64_t>(values.size())});
}

Parameter& output_weight(RankState& state, ParameterStore& parameters) {
  return parameters.at(state.config.model.untie_embeddings_and_output_weights ? "output_layer.weight"
                                                                              : "embedding.word_embeddings.weight");
}

}  // namespace

LossHead::LossHead(RankState& state, ParameterStore& parameters)
    : state_(state),
      norm_(state, parameters, "decoder.final_layernorm.weight", "decoder.final_layernorm.bias"),
      weight_(output_weight(state, parameters)) {
  if (weight_.spec.is_tied_embedding && state.groups.is_first_stage()) {
    tied_grad_ =
        core::Tensor::zeros(state.ops.arena, core::DType::kFp32, weight_.weight.shape(), core::MemoryTag::kGrad);
  }
}

core::Tensor LossHead::logits_of(const core::TensorView& rows) {
  core::Tensor logits = ops::linear_fp32(state_.ops, rows, weight_.weight);
  const double cap = state_.config.model.output_logit_softcapping;
  if (cap > 0) ops::softcap_inplace(state_.ops, logits, cap);
  return logits;
}

LossValue LossHead::forward(const Microbatch& microbatch, LossActivations& saved, bool forward_only) {
  ops::Context& ops = state_.ops;
  const int64_t rows = microbatch.seq * microbatch.batch;
  saved.normed = norm_.forward(saved.input, saved.norm);
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, saved.normed, gathered);
  saved.logits = logits_of(full.reshaped({rows, full.dim(-1)}));
  gathered.reset();

  const std::vector<int32_t> labels = sequence_major(microbatch.labels, microbatch.batch, microbatch.seq);
  const int64_t valid = valid_vocab_rows(state_, weight_);
  saved.max.resize(static_cast<size_t>(rows));
  saved.sum_exp.resize(static_cast<size_t>(rows));
  std::vector<float> target(static_cast<size_t>(rows));
  ops::row_max(ops, saved.logits, valid, saved.max);
  if (state_.tp_size() > 1) state_.groups.tp.allreduce(view(saved.max), core::ReduceOp::kMax);
  ops::row_sums(ops, saved.logits, valid, saved.max, labels, first_vocab_id(state_, weight_), saved.sum_exp, target);
  if (state_.tp_size() > 1) {
    state_.groups.tp.allreduce(view(saved.sum_exp));
    state_.groups.tp.allreduce(view(target));
  }
  LossValue loss;
  for (int64_t b = 0; b < microbatch.batch; ++b) {
    for (int64_t s = 0; s < microbatch.seq; ++s) {
      const auto row = static_cast<size_t>(s * microbatch.batch + b);
      const double mask = microbatch.loss_mask[static_cast<size_t>(b * microbatch.seq + s)];
      loss.sum += mask * (std::log(static_cast<double>(saved.sum_exp[row])) + saved.max[row] - target[row]);
      loss.tokens += mask;
    }
  }
  if (forward_only) saved = {};
  return loss;
}

core::Tensor LossHead::backward(const Microbatch& microbatch, LossActivations& saved, double scale) {
  ops::Context& ops = state_.ops;
  const int64_t rows = microbatch.seq * microbatch.batch;
  std::vector<float> row_scale(static_cast<size_t>(rows));
  for (int64_t b = 0; b < microbatch.batch; ++b) {
    for (int64_t s = 0; s < microbatch.seq; ++s) {
      row_scale[static_cast<size_t>(s * microbatch.batch + b)] =
          static_cast<float>(scale * microbatch.loss_mask[static_cast<size_t>(b * microbatch.seq + s)]);
    }
  }
  const std::vector<int32_t> labels = sequence_major(microbatch.labels, microbatch.batch, microbatch.seq);
  const double cap = state_.config.model.output_logit_softcapping;
  core::Tensor capped;
  if (cap > 0) capped = ops::cast(ops, saved.logits, core::DType::kFp32);  // the next call overwrites them
  ops::cross_entropy_backward(ops, saved.logits, valid_vocab_rows(state_, weight_), saved.max, saved.sum_exp, labels,
                              first_vocab_id(state_, weight_), row_scale);
  if (cap > 0) ops::softcap_backward_inplace(ops, saved.logits, capped, cap);
  capped.reset();
  core::Tensor cast;
  core::TensorView dlogits = saved.logits;
  if (state_.config.params_dtype() != core::DType::kFp32) {
    cast = ops::cast(ops, saved.logits, state_.config.params_dtype());
    saved.logits.reset();
    dlogits = cast;
  }
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, saved.normed, gathered);
  ops::linear_wgrad(ops, full.reshaped({rows, full.dim(-1)}), dlogits,
                    tied_grad_.defined() ? tied_grad_.view() : weight_.main_grad);
  core::Tensor dnormed = ops::linear_dgrad(ops, dlogits, weight_.weight);
  dnormed.reshape({microbatch.seq, microbatch.batch, state_.config.model.hidden_size});
  dnormed = leave_row_parallel(state_, std::move(dnormed));
  core::Tensor dx = norm_.backward(dnormed, saved.input, saved.norm);
  saved = {};
  return dx;
}

std::vector<float> LossHead::last_logits(const core::TensorView& hidden, int64_t position) {
  ops::NormStatistics statistics;
  core::Tensor gathered;
  const core::Tensor normed = norm_.forward(hidden, statistics);
  const core::TensorView full = enter_column_parallel(state_, normed, gathered);
  const core::TensorView row = full.rows(position, position + 1).reshaped({1, full.dim(-1)});
  const core::Tensor local = logits_of(row);
  std::vector<float> logits(static_cast<size_t>(local.size() * state_.tp_size()));
  state_.groups.tp.allgather(local.view().reshaped({local.size()}), view(logits));
  logits.resize(static_cast<size_t>(state_.config.model.vocab_size));
  return logits;
}

void LossHead::fold_tied_gradient() {
  if (!tied_grad_.defined()) return;
  ops::accumulate_fp32(state_.ops, weight_.main_grad, tied_grad_);
  ops::fill_zero(state_.ops, tied_grad_);
}

}  // namespace ms::train
