#include "train/data/sampler.h"

#include "core/error.h"

namespace ms::train {

std::vector<std::vector<int64_t>> microbatch_samples(const SamplerPosition& position) {
  if (position.consumed_samples < 0 || position.data_parallel_size < 1 || position.micro_batch_size < 1 ||
      position.num_microbatches < 1 || position.data_parallel_rank < 0 ||
      position.data_parallel_rank >= position.data_parallel_size) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("sampler: consumed_samples ", position.consumed_samples, ", data-parallel rank ",
                                position.data_parallel_rank, " of ", position.data_parallel_size, ", micro-batch size ",
                                position.micro_batch_size, ", micro-batches ", position.num_microbatches,
                                ": sizes must be positive and the rank below its size"));
  }
  std::vector<std::vector<int64_t>> result(static_cast<size_t>(position.num_microbatches));
  for (int64_t m = 0; m < position.num_microbatches; ++m) {
    const int64_t run = m * position.data_parallel_size + position.data_parallel_rank;
    const int64_t first = position.consumed_samples + run * position.micro_batch_size;
    for (int64_t i = 0; i < position.micro_batch_size; ++i) result[static_cast<size_t>(m)].push_back(first + i);
  }
  return result;
}

Microbatch read_microbatch(const SampleSource& source, const std::vector<int64_t>& indices,
                           std::optional<int32_t> eod_mask_loss_id, int64_t vocab_size) {
  Microbatch out;
  out.samples = indices;
  out.batch = static_cast<int64_t>(indices.size());
  out.seq = source.seq_length();
  const auto seq = static_cast<size_t>(out.seq);
  out.tokens.resize(indices.size() * seq);
  out.labels.resize(indices.size() * seq);
  out.loss_mask.assign(indices.size() * seq, 1.0F);
  std::vector<int32_t> row(seq + 1);
  for (size_t b = 0; b < indices.size(); ++b) {
    source.sample(indices[b], row);
    for (const int32_t id : row) {
      if (id < 0 || id >= vocab_size) {
        throw core::Error(core::ErrorCode::kCorruptData,
                          core::cat("data: sample ", indices[b], " has the token id ", id, " but the vocabulary has ",
                                    vocab_size, " ids. Was the data set made with another tokenizer?"));
      }
    }
    for (size_t s = 0; s < seq; ++s) {
      out.tokens[b * seq + s] = row[s];
      out.labels[b * seq + s] = row[s + 1];
      if (eod_mask_loss_id && row[s] == *eod_mask_loss_id) out.loss_mask[b * seq + s] = 0.0F;
    }
  }
  return out;
}

}  // namespace ms::train
