#include "train/loop/pretraining.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/layout/formulas/flops.h"

namespace ms::train {

void Pretraining::build_data(const std::function<bool()>& stopped) {
  const TrainingConfig& t = config_.training;
  const int64_t train_samples = t.skip_train ? 0 : config_.num_train_samples();
  data_ = build_datasets(config_.data, t.seq_length, static_cast<uint64_t>(config_.rng.seed), train_samples,
                         config_.num_valid_samples(), t.eval_iters * config_.eval_batch_size(), stopped, &tokenizer_,
                         config_.parallel.variable_seq_lengths ? SampleKind::kDocument : SampleKind::kPacked);
  if (!t.skip_train && data_.train == nullptr) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      "there is no training data: give --data-path or --train-data-path (or --mock-data for a test)");
  }
  if (t.skip_train && data_.valid == nullptr && data_.test == nullptr) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      "--skip-train evaluates, but there is no data for it: give --valid-data-path or "
                      "--test-data-path, or --data-path with a --split, and --eval-iters");
  }
}

double Pretraining::flops(int64_t length, std::span<const int64_t> document_ends) const {
  int64_t flops =
      layout::model_flops_per_sample(config_.model, length, groups_.grid.tp, config_.training.prefix_length);
  if (!document_ends.empty()) flops -= layout::attention_flops(config_.model, length);
  int64_t first = 0;
  for (const int64_t end : document_ends)
    flops += layout::attention_flops(config_.model, end - std::exchange(first, end));
  return static_cast<double>(flops);
}

void Pretraining::deal(const SampleSource& samples, const EodRules& eod, const SamplerPosition& position) {
  std::vector<double> costs;
  for (int64_t i = 0; i < position.global_batch_size(); ++i) {
    scanned_.samples = {position.consumed_samples + i};
    if (eod.reset_attention_mask) read_microbatch(samples, eod, config_.model.vocab_size, scanned_, 1);
    costs.push_back(flops(samples.sample_length(scanned_.samples.front()), scanned_.document_ends));
  }
  deal_ = deal_by_cost(costs, position.data_parallel_size, position.micro_batch_size);
}

const std::vector<Microbatch>& Pretraining::read_batch(Set set, int64_t consumed, int64_t batch_size) {
  const SampleSource& samples = set == Set::kTraining ? *data_.train : set == Set::kTest ? *data_.test : *data_.valid;
  SamplerPosition position;
  position.consumed_samples = consumed;
  position.data_parallel_rank = groups_.at.dp;
  position.data_parallel_size = groups_.grid.dp;
  position.micro_batch_size = config_.training.micro_batch_size;
  position.num_microbatches = batch_size / (position.micro_batch_size * position.data_parallel_size);
  const EodRules eod{.id = tokenizer_.eod(),
                     .mask_loss = config_.data.eod_mask_loss,
                     .reset_attention_mask = config_.training.reset_attention_mask,
                     .reset_position_ids = config_.training.reset_position_ids};
  tokens_ = 0;
  for (int64_t i = 0; i < batch_size; ++i) tokens_ += samples.sample_length(consumed + i);
  if (config_.parallel.hybrid_context_parallel && position.data_parallel_size > 1) {
    deal(samples, eod, position);
    position.order = deal_->order;
  }
  choose_samples(position, microbatches_);
  // Every stage reads the batch, so that all of them know how long each micro-batch is.
  const int64_t multiple = config_.parallel.variable_seq_lengths ? sequence_multiple(config_.parallel) : 0;
  for (Microbatch& microbatch : microbatches_) {
    read_microbatch(samples, eod, config_.model.vocab_size, microbatch, multiple);
    const int64_t prefix = config_.training.prefix_length;
    ignore_prefix_loss(prefix, microbatch);
    take_rows(sequence_share(config_.parallel, microbatch.seq, groups_.at.cp, microbatch.document_ends, prefix),
              microbatch, config_.model.mtp_num_layers);
  }
  return microbatches_;
}

double Pretraining::hidden_flops() const {
  const bool is_packed = config_.training.reset_attention_mask, is_variable = config_.parallel.variable_seq_lengths;
  if (!is_packed && !is_variable) return 0;
  double hidden = 0;
  std::vector<int64_t> ends;
  for (const Microbatch& microbatch : microbatches_) {
    const int64_t seq = microbatch.share.is_whole() ? microbatch.seq : microbatch.share.seq_length();
    auto end = microbatch.document_ends.begin();
    for (int64_t b = 0; b < microbatch.batch; ++b) {
      const int64_t length = microbatch.lengths[static_cast<size_t>(b)];
      ends.clear();
      for (; end != microbatch.document_ends.end() && *end <= (b + 1) * seq; ++end)
        ends.push_back(std::min(*end - b * seq, length));
      hidden += flops(config_.training.seq_length, {}) - flops(length, ends);
    }
  }
  return hidden / (groups_.grid.tp * groups_.grid.cp * groups_.grid.pp);
}

void Pretraining::describe(StepMetrics& step) const {
  step.tokens = tokens_;
  if (deal_) step.dealt = deal_->cost;
}

}  // namespace ms::train
