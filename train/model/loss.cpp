#include "train/model/loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "core/error.h"
#include "train/model/embedding.h"
#include "train/model/tensor_recorder.h"
#include "train/ops/activation.h"
#include "train/ops/cross_entropy.h"
#include "train/ops/elementwise.h"
#include "train/parallel/mappings.h"

namespace ms::train {
namespace {

core::TensorView view(std::span<float> values) {
  return core::TensorView(values.data(), core::DType::kFp32, {static_cast<int64_t>(values.size())});
}

// What rows have from `begin` on.
template <class T>
auto part(T& values, int64_t begin, int64_t count) {
  return std::span(values).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

const char* output_layer(const core::TransformerConfig& model) {
  return model.untie_embeddings_and_output_weights ? "output_layer" : "embedding.word_embeddings";
}

}  // namespace

void LossActivations::drop() {
  for (core::Tensor* tensor : {&input, &normed, &norm.mean, &norm.rstd, &logits, &dnormed}) tensor->reset();
}

LossHead::LossHead(RankState& state, ParameterStore& parameters)
    : state_(state),
      norm_(state, parameters, "decoder.final_layernorm.weight", "decoder.final_layernorm.bias"),
      output_(state, parameters, output_layer(state.config.model)) {}

core::Tensor LossHead::logits_of(const core::TensorView& rows) {
  core::Tensor logits = output_.forward_rows(rows);
  const double cap = state_.config.model.output_logit_softcapping;
  if (cap > 0) ops::softcap_inplace(state_.ops, logits, cap);
  return logits;
}

void LossHead::add_losses(const Microbatch& microbatch, const core::TensorView& logits, int64_t begin, LossRows& rows,
                          LossValue& loss) {
  ops::Context& ops = state_.ops;
  const int64_t valid = valid_vocab_rows(state_, output_.weight()), n = logits.dim(0);
  const std::span<float> max = part(rows.max, begin, n), sum_exp = part(rows.sum_exp, begin, n);
  const std::span<float> target = part(rows.target, begin, n);
  const std::span<const float> mask = part(microbatch.loss_mask, begin, n);
  ops::row_max(ops, logits, valid, max);
  if (state_.tp_size() > 1) state_.groups.tp.allreduce(view(max), core::ReduceOp::kMax);
  ops::row_sums(ops, logits, valid, max, part(microbatch.labels, begin, n), first_vocab_id(state_, output_.weight()),
                sum_exp, target);
  if (state_.tp_size() > 1) {
    state_.groups.tp.allreduce(view(sum_exp));
    state_.groups.tp.allreduce(view(target));
  }
  for (size_t i = 0; i < mask.size(); ++i) {
    loss.sum += static_cast<double>(mask[i]) * (std::log(static_cast<double>(sum_exp[i])) + max[i] - target[i]);
    loss.tokens += mask[i];
  }
}

core::Tensor LossHead::logits_backward(const Microbatch& microbatch, const LossRows& rows, int64_t begin,
                                       core::Tensor logits) {
  ops::Context& ops = state_.ops;
  const int64_t n = logits.dim(0);
  const double cap = state_.config.model.output_logit_softcapping;
  core::Tensor capped;
  if (cap > 0) capped = ops::cast(ops, logits, core::DType::kFp32);  // the next call overwrites them
  ops::cross_entropy_backward(ops, logits, valid_vocab_rows(state_, output_.weight()), part(rows.max, begin, n),
                              part(rows.sum_exp, begin, n), part(microbatch.labels, begin, n),
                              first_vocab_id(state_, output_.weight()), part(rows.grad_scale, begin, n));
  if (cap > 0) ops::softcap_backward_inplace(ops, logits, capped, cap);
  capped.reset();
  if (state_.config.params_dtype() == core::DType::kFp32) return logits;
  return ops::cast(ops, logits, state_.config.params_dtype());
}

LossValue LossHead::forward_output(const Microbatch& microbatch, LossActivations& saved, std::optional<double> scale,
                                   bool normed_stays) {
  return forward_normed(microbatch, saved, scale,
                        {.positions = state_.config.training.loss_chunk_size, .normed_stays = normed_stays});
}

LossValue LossHead::forward_normed(const Microbatch& microbatch, LossActivations& saved, std::optional<double> scale,
                                   Way way) {
  const int64_t count = microbatch.seq * microbatch.batch;
  const bool in_chunks = way.positions > 0;
  core::Tensor gathered;
  core::TensorView full = enter_column_parallel(state_, saved.normed, gathered);
  if (in_chunks && way.normed_stays && !gathered.defined()) {  // gradients are written to what the output layer reads
    gathered = ops::cast(state_.ops, full, full.dtype());
    full = gathered;
  }
  const core::TensorView hidden = full.reshaped({count, full.dim(-1)});
  LossRows& rows = saved.rows;
  const std::vector<float>& mask = microbatch.loss_mask;
  for (std::vector<float>* values : {&rows.grad_scale, &rows.max, &rows.sum_exp, &rows.target}) {
    values->resize(mask.size());
  }
  for (size_t i = 0; i < mask.size(); ++i) rows.grad_scale[i] = static_cast<float>(scale.value_or(0) * mask[i]);

  const int64_t step = in_chunks ? way.positions * microbatch.batch : count;
  LossValue loss;
  for (int64_t begin = 0; begin < count; begin += step) {
    const int64_t end = std::min(begin + step, count);
    const core::TensorView x = hidden.rows(begin, end);
    core::Tensor logits = logits_of(x);
    add_losses(microbatch, logits, begin, rows, loss);
    if (!scale) continue;
    if (in_chunks) {
      const core::Tensor dx = output_.backward_rows(x, logits_backward(microbatch, rows, begin, std::move(logits)));
      std::memcpy(x.bytes(), dx.bytes(), static_cast<size_t>(dx.size_bytes()));  // nothing reads x any more
    } else {
      saved.logits = std::move(logits);
      record_output(state_, "output_layer", "",
                    saved.logits.view().reshaped({microbatch.seq, microbatch.batch, saved.logits.dim(-1)}),
                    TensorRecorder::Split::kVocabulary);
    }
  }
  if (!scale) saved.drop();
  if (in_chunks && scale) {
    saved.dnormed = std::move(gathered.defined() ? gathered : saved.normed);
    if (!way.normed_stays) saved.normed.reset();
  }
  return loss;
}

core::Tensor LossHead::backward_normed(const Microbatch& microbatch, LossActivations& saved, WeightGradients& weights) {
  core::Tensor dnormed;
  if (saved.logits.defined()) {
    core::Tensor dlogits = logits_backward(microbatch, saved.rows, 0, std::move(saved.logits));
    dlogits.reshape({microbatch.seq, microbatch.batch, dlogits.dim(-1)});
    record_gradient(state_, "output_layer", "", dlogits, TensorRecorder::Split::kVocabulary);
    dnormed = output_.backward(std::move(dlogits), std::move(saved.normed), weights);
  } else {
    saved.dnormed.reshape({microbatch.seq, microbatch.batch, state_.config.model.hidden_size});
    dnormed = leave_row_parallel(state_, std::move(saved.dnormed));
  }
  return dnormed;
}

core::Tensor LossHead::backward(const Microbatch& microbatch, LossActivations& saved, WeightGradients& weights,
                                core::Tensor more) {
  core::Tensor dnormed = backward_normed(microbatch, saved, weights);
  if (more.defined()) ops::add_inplace(state_.ops, dnormed, more);
  more.reset();
  core::Tensor dx = norm_.backward_over(std::move(dnormed), saved.input, saved.norm);
  saved.drop();
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

}  // namespace ms::train
