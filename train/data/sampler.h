// Chooses the samples of a rank at each step, and makes micro-batches of them.
//
// The order depends only on consumed_samples: a step's global batch is samples [consumed, consumed + global batch) for
// any number of data-parallel ranks, and micro-batch m is the m-th run of micro_batch_size x data_parallel_size
// samples, of which each rank takes its micro_batch_size in rank order (MegatronPretrainingSampler,
// megatron/legacy/data/data_samplers.py). A deal by cost (deal.h) reorders the samples of a global batch before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/layout/context_parallel.h"
#include "core/layout/mask_grid.h"
#include "train/data/sample_source.h"

namespace ms::train {

struct SamplerPosition {
  int64_t consumed_samples = 0;  // by the whole run, at the start of the step
  int data_parallel_rank = 0;
  int data_parallel_size = 1;
  int64_t micro_batch_size = 1;
  int64_t num_microbatches = 1;
  std::span<const int64_t> order = {};  // which sample of the global batch stands at each place; empty: the i-th

  int64_t global_batch_size() const { return micro_batch_size * data_parallel_size * num_microbatches; }
};

// One micro-batch, sequence-major: in the order of the rows of the hidden states. seq: those that this rank has of each
// sequence, all unless take_rows() has left a part.
struct Microbatch {
  std::vector<int32_t> tokens;   // [seq, batch]
  std::vector<int32_t> labels;   // [seq, batch]: the token that follows
  std::vector<float> loss_mask;  // [seq, batch]: 1, or 0 for a token whose loss is ignored
  std::vector<int64_t> samples;  // [batch]: numbers in the run; dropout masks depend on them
  // [batch]: tokens of each sample; behind them is padding, without a loss. Empty: no sample is padded.
  std::vector<int64_t> lengths;
  // [seq, batch]: position ids, from 0 in each document; empty: those in the sample.
  std::vector<int32_t> positions;
  // What take_rows() leaves of whole sequences: which positions the rows are, [seq, batch] the same as numbers, and how
  // many tokens of all rows of the micro-batch have a loss.
  layout::SequenceShare share;
  std::vector<int32_t> row_positions;
  std::optional<double> tokens_of_all_rows;
  // For multi-token prediction: of the same rows what roll() makes of the whole sequences, once, twice, ..; empty where
  // the rows are whole sequences.
  std::vector<Microbatch> ahead;
  // Where documents end that do not see each other (ops::AttentionParams); empty: all tokens of a sample do.
  std::vector<int64_t> document_ends;
  // What positions of each sample see by a grid; null: those before them.
  std::shared_ptr<const layout::MaskGrid> grid;
  bool rolls_within_documents = false;  // roll(): what follows a document is not of it
  std::vector<int32_t> sample;          // [seq + 1], and of it the ends of documents: read_microbatch's working memory
  std::vector<int64_t> sample_ends;
  int64_t batch = 0;
  int64_t seq = 0;

  // Positions of the whole sequences.
  int64_t positions_without_padding() const;
  // Tokens of the micro-batch that have a loss, on all ranks that share its sequences.
  double loss_tokens() const;
};

// Fills `batch` with the micro-batches of this rank: their number, and the samples of each. Reuses the memory of
// `batch`, so that a step with the same sizes as the last one allocates nothing. Throws kInvalidArgument for sizes
// below 1 or a rank outside its size. The order, if there is one, has the global batch.
void choose_samples(const SamplerPosition& position, std::vector<Microbatch>& batch);

// Where the documents of a sample end, and what that changes.
struct DocumentRules {
  // Of the tokenizer; a document ends behind it (Megatron's get_ltor_masks_and_position_ids). nullopt: nothing does.
  std::optional<int32_t> eod;
  bool mask_loss = false;             // where the *input* token is eod, as in Megatron
  bool reset_attention_mask = false;  // documents do not see each other
  bool reset_position_ids = false;    // positions begin anew in each
  // Documents end where those of the data set do (SampleSource::document_ends), not behind eod; both of the above
  // follow (megatron/core/datasets/gpt_dataset.py). Padding belongs to the last one.
  bool inter_document_masking = false;

  bool keeps_apart() const { return reset_attention_mask || inter_document_masking; }
  bool restarts_positions() const { return reset_position_ids || inter_document_masking; }
};

// Reads the tokens of microbatch.samples from source. vocab_size: the model's; throws kCorruptData for an id at or
// above it (a data set made with another tokenizer), which must not reach an embedding table. multiple: 0: the
// micro-batch has the source's seq_length, else the smallest multiple in which the longest of its samples fits.
void read_microbatch(const SampleSource& source, const DocumentRules& rules, int64_t vocab_size, Microbatch& microbatch,
                     int64_t multiple = 0);

// Gives whole sequences a mask. The loss of a token that is seen where it is predicted, one position before it, is
// ignored: in a prefix all but the first, and those that a grid shows to positions before them.
void apply_mask(const layout::SampleMask& mask, Microbatch& microbatch);

// Moves tokens, labels and mask of each sample up by a position; the last one has token 0, label 0 and mask 0, with
// rolls_within_documents that of each document (megatron/core/transformer/multi_token_prediction.py, roll_tensor). Of
// whole sequences. `rolled` may be reused; it has no other members but what the next roll() needs.
void roll(const Microbatch& microbatch, Microbatch& rolled);

// Leaves of whole sequences the rows of `share`, and so many further ones `ahead`. document_ends stay those of whole
// sequences.
void take_rows(const layout::SequenceShare& share, Microbatch& microbatch, int64_t num_ahead = 0);

}  // namespace ms::train
