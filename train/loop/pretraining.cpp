#include "train/loop/pretraining.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/layout/formulas/flops.h"
#include "core/log.h"

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
  if (config_.parallel.hybrid_context_parallel && groups_.grid.dp == 1 && !chooses_degrees(config_.parallel)) {
    core::log_warning("train.data",
                      "--hybrid-context-parallel has no effect: there is one replica, which computes all samples");
  }
}

double Pretraining::flops(int64_t length, std::span<const int64_t> document_ends) const {
  int64_t flops = layout::model_flops_per_sample(config_.model, length, groups_.grid.tp, sample_mask(config_.training));
  if (!document_ends.empty()) flops -= layout::attention_flops(config_.model, length);
  int64_t first = 0;
  for (const int64_t end : document_ends)
    flops += layout::attention_flops(config_.model, end - std::exchange(first, end));
  return static_cast<double>(flops);
}

std::vector<double> Pretraining::costs(const SampleSource& samples, const DocumentRules& rules,
                                       const SamplerPosition& position) {
  std::vector<double> costs;
  for (int64_t i = 0; i < position.global_batch_size(); ++i) {
    scanned_.samples = {position.consumed_samples + i};
    if (rules.keeps_apart()) read_microbatch(samples, rules, config_.model.vocab_size, scanned_, 1);
    costs.push_back(flops(samples.sample_length(scanned_.samples.front()), scanned_.document_ends));
  }
  return costs;
}

void Pretraining::deal(const SampleSource& samples, const DocumentRules& rules, SamplerPosition position) {
  const std::vector<double> of_samples = costs(samples, rules, position);
  if (!chooses_degrees(config_.parallel)) {
    const Deal deal = deal_by_cost(of_samples, position.data_parallel_size, position.micro_batch_size);
    dealt_ = deal.cost;
    position.order = deal.order;
    choose_samples(position, microbatches_);
    return;
  }
  const DegreeSettings settings{.dp = groups_.grid.dp,
                                .cp = groups_.grid.cp,
                                .max_rows = *config_.parallel.max_seqlen_per_dp_cp_rank,
                                .micro_batch_size = position.micro_batch_size};
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < position.global_batch_size(); ++i)
    lengths.push_back(samples.sample_length(position.consumed_samples + i));
  degree_deal_ = deal_by_degree(lengths, of_samples, settings);
  dealt_ = degree_deal_.cost;
  choose_samples(degree_deal_, settings, position.consumed_samples, groups_.at.dp * settings.cp + groups_.at.cp,
                 microbatches_);
}

const std::vector<Microbatch>& Pretraining::read_batch(Set set, int64_t consumed, int64_t batch_size) {
  const SampleSource& samples = set == Set::kTraining ? *data_.train : set == Set::kTest ? *data_.test : *data_.valid;
  const ModelParallelConfig& parallel = config_.parallel;
  SamplerPosition position;
  position.consumed_samples = consumed;
  position.data_parallel_rank = groups_.at.dp;
  position.data_parallel_size = groups_.grid.dp;
  position.micro_batch_size = config_.training.micro_batch_size;
  position.num_microbatches = batch_size / (position.micro_batch_size * position.data_parallel_size);
  const DocumentRules rules{.eod = tokenizer_.eod(),
                            .mask_loss = config_.data.eod_mask_loss,
                            .reset_attention_mask = config_.training.reset_attention_mask,
                            .reset_position_ids = config_.training.reset_position_ids,
                            .inter_document_masking = masks_documents_of_data(config_)};
  tokens_ = 0;
  for (int64_t i = 0; i < batch_size; ++i) tokens_ += samples.sample_length(consumed + i);
  const bool chooses = chooses_degrees(parallel);
  if (parallel.hybrid_context_parallel && (chooses || position.data_parallel_size > 1)) {
    deal(samples, rules, position);
  } else {
    choose_samples(position, microbatches_);
  }
  // Every stage reads the batch, so that all of them know how long each micro-batch is.
  for (size_t m = 0; m < microbatches_.size(); ++m) {
    Microbatch& microbatch = microbatches_[m];
    const int degree = chooses ? degree_deal_.degrees[m] : 0;
    const int64_t multiple = chooses                         ? multiple_of_degree(parallel, degree)
                             : parallel.variable_seq_lengths ? sequence_multiple(parallel)
                                                             : 0;
    read_microbatch(samples, rules, config_.model.vocab_size, microbatch, multiple);
    const layout::SampleMask mask = sample_mask(config_.training);
    apply_mask(mask, microbatch);
    const layout::SequenceShare share =
        chooses ? share_of_degree(parallel, microbatch.seq, degree, groups_.at.cp)
                : sequence_share(parallel, microbatch.seq, groups_.at.cp, microbatch.document_ends, mask);
    take_rows(share, microbatch, config_.model.mtp_num_layers);
  }
  return microbatches_;
}

double Pretraining::hidden_flops() const {
  const bool is_packed = keeps_documents_apart(config_), is_variable = config_.parallel.variable_seq_lengths;
  if (!is_packed && !is_variable) return 0;
  double hidden = 0;
  std::vector<int64_t> ends;
  for (const Microbatch& microbatch : microbatches_) {
    const int64_t seq = microbatch.share.is_whole() ? microbatch.seq : microbatch.share.seq_length();
    double of_microbatch = 0;
    auto end = microbatch.document_ends.begin();
    for (int64_t b = 0; b < microbatch.batch; ++b) {
      const int64_t length = microbatch.lengths[static_cast<size_t>(b)];
      ends.clear();
      for (; end != microbatch.document_ends.end() && *end <= (b + 1) * seq; ++end)
        ends.push_back(std::min(*end - b * seq, length));
      of_microbatch += flops(config_.training.seq_length, {}) - flops(length, ends);
    }
    hidden +=
        of_microbatch * static_cast<double>(microbatch.seq) / static_cast<double>(seq);  // of the ranks that share
  }
  return hidden / (groups_.grid.tp * groups_.grid.pp);
}

void Pretraining::describe(StepMetrics& step) const {
  step.tokens = tokens_;
  step.dealt = dealt_;
}

}  // namespace ms::train
