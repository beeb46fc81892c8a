#include "train/data/sampler.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace ms::train {
namespace {

void check_ids(const std::vector<int32_t>& sample, int64_t number, int64_t vocab_size) {
  for (const int32_t id : sample) {
    if (id < 0 || id >= vocab_size) {
      throw core::Error(core::ErrorCode::kCorruptData,
                        core::cat("data: sample ", number, " has the token id ", id, " but the vocabulary has ",
                                  vocab_size, " ids. Was the data set made with another tokenizer?"));
    }
  }
}

}  // namespace

int64_t Microbatch::positions_without_padding() const {
  if (lengths.empty()) return batch * (share.is_whole() ? seq : share.seq_length());
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

double Microbatch::loss_tokens() const {
  if (tokens_of_all_rows) return *tokens_of_all_rows;
  double sum = 0;
  for (const float mask : loss_mask) sum += mask;
  return sum;
}

void choose_samples(const SamplerPosition& position, std::vector<Microbatch>& batch) {
  if (position.consumed_samples < 0 || position.data_parallel_size < 1 || position.micro_batch_size < 1 ||
      position.num_microbatches < 1 || position.data_parallel_rank < 0 ||
      position.data_parallel_rank >= position.data_parallel_size) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("sampler: consumed_samples ", position.consumed_samples, ", data-parallel rank ",
                                position.data_parallel_rank, " of ", position.data_parallel_size, ", micro-batch size ",
                                position.micro_batch_size, ", micro-batches ", position.num_microbatches,
                                ": sizes must be positive and the rank below its size"));
  }
  MS_CHECK(position.order.empty() || static_cast<int64_t>(position.order.size()) == position.global_batch_size(),
           "an order of ", position.order.size(), " samples for a global batch of ", position.global_batch_size());
  batch.resize(static_cast<size_t>(position.num_microbatches));
  for (int64_t m = 0; m < position.num_microbatches; ++m) {
    const int64_t run = m * position.data_parallel_size + position.data_parallel_rank;
    std::vector<int64_t>& samples = batch[static_cast<size_t>(m)].samples;
    samples.resize(static_cast<size_t>(position.micro_batch_size));
    const int64_t first = run * position.micro_batch_size;
    std::iota(samples.begin(), samples.end(), position.consumed_samples + first);
    if (position.order.empty()) continue;
    for (size_t i = 0; i < samples.size(); ++i)
      samples[i] = position.consumed_samples + position.order[static_cast<size_t>(first) + i];
  }
}

void read_microbatch(const SampleSource& source, const DocumentRules& rules, int64_t vocab_size, Microbatch& microbatch,
                     int64_t multiple) {
  const std::vector<int64_t>& samples = microbatch.samples;
  microbatch.batch = static_cast<int64_t>(samples.size());
  microbatch.lengths.clear();
  for (const int64_t number : samples) microbatch.lengths.push_back(source.sample_length(number));
  microbatch.seq = source.seq_length();
  if (multiple > 0) {
    const int64_t longest = *std::ranges::max_element(microbatch.lengths);
    microbatch.seq = (longest + multiple - 1) / multiple * multiple;
  }
  microbatch.share = {};
  microbatch.row_positions.clear();
  microbatch.tokens_of_all_rows.reset();
  const auto seq = static_cast<size_t>(microbatch.seq);
  const size_t batch = samples.size(), size = seq * batch;
  microbatch.tokens.resize(size);
  microbatch.labels.resize(size);
  microbatch.loss_mask.assign(size, 1.0F);
  microbatch.positions.resize(rules.restarts_positions() ? size : 0);
  microbatch.document_ends.clear();
  microbatch.rolls_within_documents = rules.inter_document_masking;
  std::vector<int32_t>& sample = microbatch.sample;
  for (size_t b = 0; b < batch; ++b) {
    const auto length = static_cast<size_t>(microbatch.lengths[b]);
    sample.resize(length + 1);
    source.sample(samples[b], sample);
    check_ids(sample, samples[b], vocab_size);
    sample.resize(seq + 1, 0);
    std::vector<int64_t>& ends = microbatch.sample_ends;
    if (rules.inter_document_masking) source.document_ends(samples[b], ends);
    size_t first = 0, document = 0;  // of the document; its number
    for (size_t s = 0; s < seq; ++s) {
      const size_t row = s * batch + b;
      if (s >= length) microbatch.loss_mask[row] = 0.0F;
      // sample[length] is the last label: as a token it would follow the last one in a copy that is rolled.
      microbatch.tokens[row] = s < length ? sample[s] : 0;
      microbatch.labels[row] = sample[s + 1];
      if (rules.restarts_positions()) microbatch.positions[row] = static_cast<int32_t>(s - first);
      const bool is_eod = rules.eod && sample[s] == *rules.eod && s < length;
      if (is_eod && rules.mask_loss) microbatch.loss_mask[row] = 0.0F;
      const bool is_last = rules.inter_document_masking
                               ? document + 1 < ends.size() && static_cast<int64_t>(s) + 1 == ends[document]
                               : is_eod;
      if (!is_last) continue;
      first = s + 1;
      ++document;
      if (rules.keeps_apart() && first < seq) microbatch.document_ends.push_back(static_cast<int64_t>(b * seq + first));
    }
    if (rules.keeps_apart()) microbatch.document_ends.push_back(static_cast<int64_t>((b + 1) * seq));
  }
}

void apply_mask(const layout::SampleMask& mask, Microbatch& microbatch) {
  const int64_t seq = microbatch.seq, batch = microbatch.batch;
  MS_CHECK(microbatch.share.is_whole() && mask.prefix <= seq && (!mask.grid || mask.grid->seq_length() == seq),
           "a prefix of ", mask.prefix, ", or a grid of another length, in ", seq);
  microbatch.grid = mask.grid;
  if (mask.prefix > 0) std::fill_n(microbatch.loss_mask.begin(), (mask.prefix - 1) * batch, 0.0F);
  if (!mask.grid || mask.grid->is_causal()) return;
  for (int64_t s = 0; s + 1 < seq; ++s)
    if (mask.grid->sees(s, s + 1)) std::fill_n(microbatch.loss_mask.begin() + s * batch, batch, 0.0F);
}

void roll(const Microbatch& microbatch, Microbatch& rolled) {
  MS_CHECK(microbatch.share.is_whole(), "what follows the last row is on another rank");
  rolled.batch = microbatch.batch, rolled.seq = microbatch.seq;
  rolled.share = {};
  rolled.row_positions.clear();
  rolled.tokens_of_all_rows.reset();
  const auto by_a_position = [&](const auto& from, auto& to) {  // [seq, batch]
    to.assign(from.begin() + microbatch.batch, from.end());
    to.resize(from.size());
  };
  by_a_position(microbatch.tokens, rolled.tokens);
  by_a_position(microbatch.labels, rolled.labels);
  by_a_position(microbatch.loss_mask, rolled.loss_mask);
  rolled.rolls_within_documents = microbatch.rolls_within_documents;
  if (!rolled.rolls_within_documents) return;
  rolled.document_ends = microbatch.document_ends;
  for (const int64_t end : rolled.document_ends) {
    const int64_t last = end - 1;  // sample by sample
    const auto row = static_cast<size_t>(last % microbatch.seq * microbatch.batch + last / microbatch.seq);
    rolled.tokens[row] = rolled.labels[row] = 0;
    rolled.loss_mask[row] = 0;
  }
}

void take_rows(const layout::SequenceShare& share, Microbatch& microbatch, int64_t num_ahead) {
  if (share.is_whole()) return;
  MS_CHECK(microbatch.share.is_whole() && microbatch.seq == share.seq_length(), "rows of a sequence of ",
           share.seq_length(), " from one of ", microbatch.seq);
  microbatch.ahead.resize(static_cast<size_t>(num_ahead));
  for (size_t k = 0; k < microbatch.ahead.size(); ++k)
    roll(k == 0 ? microbatch : microbatch.ahead[k - 1], microbatch.ahead[k]);
  for (Microbatch& ahead : microbatch.ahead) take_rows(share, ahead);
  microbatch.tokens_of_all_rows = microbatch.loss_tokens();
  microbatch.share = share;
  microbatch.row_positions.clear();
  int64_t rows = 0;
  share.for_each_run(0, share.seq_length(), [&](int64_t row, int64_t position, int64_t count) {
    const auto take = [&](auto& values) {  // [seq, batch]: to the front, never over what is still to be taken
      if (values.empty()) return;
      std::copy_n(values.begin() + position * microbatch.batch, count * microbatch.batch,
                  values.begin() + row * microbatch.batch);
    };
    take(microbatch.tokens);
    take(microbatch.labels);
    take(microbatch.loss_mask);
    take(microbatch.positions);
    for (int64_t i = 0; i < count; ++i)
      microbatch.row_positions.insert(microbatch.row_positions.end(), static_cast<size_t>(microbatch.batch),
                                      static_cast<int32_t>(position + i));
    rows = row + count;
  });
  microbatch.seq = rows;
  const auto size = static_cast<size_t>(rows * microbatch.batch);
  const auto cut = [size](auto& values) { values.resize(std::min(values.size(), size)); };
  cut(microbatch.tokens);
  cut(microbatch.labels);
  cut(microbatch.loss_mask);
  cut(microbatch.positions);
}

}  // namespace ms::train
