#include "train/loop/pretraining.h"

#include <utility>

#include "core/error.h"
#include "core/layout/formulas/flops.h"

namespace ms::train {

void Pretraining::build_data(const std::function<bool()>& stopped) {
  const TrainingConfig& t = config_.training;
  const int64_t train_samples = t.skip_train ? 0 : config_.num_train_samples();
  data_ = build_datasets(config_.data, t.seq_length, static_cast<uint64_t>(config_.rng.seed), train_samples,
                         config_.num_valid_samples(), t.eval_iters * config_.eval_batch_size(), stopped, &tokenizer_);
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
  choose_samples(position, microbatches_);
  for (Microbatch& microbatch : microbatches_) {
    read_microbatch(samples, eod, config_.model.vocab_size, microbatch);
    take_rows(sequence_share(config_.parallel, microbatch.seq, groups_.at.cp, microbatch.document_ends), microbatch,
              config_.model.mtp_num_layers);
  }
  return microbatches_;
}

double Pretraining::hidden_attention_flops() const {
  int64_t hidden = 0;
  for (const Microbatch& microbatch : microbatches_) {
    if (microbatch.document_ends.empty()) continue;
    hidden += microbatch.batch * layout::attention_flops(config_.model, config_.training.seq_length);
    int64_t first = 0;
    for (const int64_t end : microbatch.document_ends)
      hidden -= layout::attention_flops(config_.model, end - std::exchange(first, end));
  }
  return static_cast<double>(hidden) / (groups_.grid.tp * groups_.grid.cp * groups_.grid.pp);
}

}  // namespace ms::train
