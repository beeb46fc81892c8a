// The objective of pretraining: the next token of documents. Which samples a step reads, and the loss of a held-out
// set.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "train/config.h"
#include "train/data/build_datasets.h"
#include "train/data/deal.h"
#include "train/data/degree_deal.h"
#include "train/data/sampler.h"
#include "train/data/tokenizer.h"
#include "train/loop/metrics.h"
#include "train/parallel/process_groups.h"

namespace ms::train {

class Pretraining {
 public:
  // All of it outlives the object.
  Pretraining(const TrainerConfig& config, const ProcessGroups& groups, const Tokenizer& tokenizer)
      : config_(config), groups_(groups), tokenizer_(tokenizer) {}

  // Opens the data sets, and builds the cached indices that are not there. Local. stopped: throws when it is true.
  // Throws kInvalidArgument, naming the flags, if there is no data for what the run does.
  void build_data(const std::function<bool()>& stopped);

  bool has_validation() const { return data_.valid != nullptr; }
  bool has_test() const { return data_.test != nullptr; }

  // This rank's micro-batches of a global batch, until the next call. consumed: samples of the set before it.
  enum class Set : uint8_t { kTraining, kValidation, kTest };
  const std::vector<Microbatch>& read_batch(Set set, int64_t consumed, int64_t batch_size);

  // Of the last batch that was read: model FLOPs (model_flops_per_sample) of scores that packed documents do not have,
  // and of tokens that short samples do not have, shared by the ranks of a replica.
  double hidden_flops() const;
  // Of the last batch that was read: tokens of all ranks, and how it was dealt.
  void describe(StepMetrics& step) const;
  // The same: how many ranks share each micro-batch; empty: as many as share sequences.
  std::span<const int> degrees() const { return degree_deal_.degrees; }

 private:
  // Model FLOPs of a sample of so many tokens. document_ends: of documents in it that do not see each other, from the
  // first token of the sample on; empty: it is one.
  double flops(int64_t length, std::span<const int64_t> document_ends) const;
  // What each sample of the global batch costs, which every rank reads for the lengths of its documents.
  std::vector<double> costs(const SampleSource& samples, const DocumentRules& rules, const SamplerPosition& position);
  // With --hybrid-context-parallel: chooses the samples of microbatches_ by a deal of the global batch. No message is
  // needed.
  void deal(const SampleSource& samples, const DocumentRules& rules, SamplerPosition position);

  const TrainerConfig& config_;
  const ProcessGroups& groups_;
  const Tokenizer& tokenizer_;
  TrainValidTest data_;
  std::vector<Microbatch> microbatches_;
  int64_t tokens_ = 0;              // of the global batch, without padding
  DegreeDeal degree_deal_;          // of the same, where the number of ranks that share a sample is chosen; else empty
  std::optional<DealtCost> dealt_;  // of the same; nullopt: samples in their order
  Microbatch scanned_;              // one sample of it
};

}  // namespace ms::train
