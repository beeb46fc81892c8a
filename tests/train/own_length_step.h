// A step of documents of their own lengths on thread ranks without replicas, for tests of --variable-seq-lengths.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/own_length_documents.h"
#include "tests/support/thread_comm.h"
#include "tests/train/model/rank.h"
#include "train/features/context_parallel.h"
#include "train/loop/step.h"

namespace ms::train {

// As long as the longest sample, or --seq-length.
enum class Lengths : uint8_t { kOwn, kPadded };

struct LengthsOutcome {
  double loss = 0;
  // Added up over all ranks, which have other rows of sequences of other lengths.
  std::map<std::string, std::vector<float>> gradients;
  std::vector<int64_t> seqs;  // of its micro-batches, whole sequences
  int64_t act_peak = 0;       // of rank 0, bytes
};

inline LengthsOutcome step_of_lengths(const test::TinyLayout& layout, const test::OwnLengthDocuments& documents,
                                      Lengths kind, const test::ConfigChange& change = {}) {
  LengthsOutcome outcome;
  std::mutex mutex;
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.training.seq_length = documents.seq_length();
  config.training.global_batch_size = documents.size();
  config.training.calculate_per_token_loss = true;
  config.parallel.variable_seq_lengths = true;
  if (change) change(config);
  test::run_thread_ranks(layout.ranks(), [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    GptStage stage(*rank.state, *rank.parameters);
    StepRunner runner(*rank.state, stage);
    rank.parameters->initialize(5, [](const Parameter&, const core::TensorView&) {});
    rank.parameters->zero_grads();
    const int64_t size = rank.config.training.micro_batch_size;
    std::vector<Microbatch> batch(static_cast<size_t>(documents.size() / size));
    for (size_t m = 0; m < batch.size(); ++m) {
      for (int64_t i = 0; i < size; ++i) batch[m].samples.push_back(static_cast<int64_t>(m) * size + i);
      read_microbatch(documents, {}, 257, batch[m],
                      kind == Lengths::kOwn ? sequence_multiple(rank.config.parallel) : 0);
      if (endpoint.rank() == 0) outcome.seqs.push_back(batch[m].seq);
      take_rows(sequence_share(rank.config.parallel, batch[m].seq, rank.groups->at.cp), batch[m]);
    }
    rank.arena.reset_peaks();
    const double loss = runner.train(batch, 1).loss;
    const std::lock_guard lock(mutex);
    test::add_gradients(*rank.parameters, outcome.gradients);
    if (endpoint.rank() != 0) return;
    outcome.loss = loss;
    outcome.act_peak = rank.arena.peak_bytes(core::MemoryTag::kAct);
  });
  return outcome;
}

}  // namespace ms::train
