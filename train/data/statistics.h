// Counts documents, sequences and tokens of a data set: what `msdata inspect` prints.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "train/data/indexed_dataset.h"

namespace ms::train {

// Shannon entropy of the distribution given by counts, in nats: the loss of a model that knows only how often each
// token occurs. 0 for no counts.
double entropy_nats(std::span<const int64_t> counts);

// Lengths in tokens, of all sequences.
struct LengthStatistics {
  int64_t shortest = 0;
  int64_t longest = 0;
  double mean = 0;
  // percentiles[i]: the smallest length such that kLengthPercentiles[i] percent of the sequences are no longer.
  std::array<int64_t, 7> percentiles{};
  // Number of sequences of 0 tokens, of 1, of 2 to 3, of 4 to 7, and so on up to the longest.
  std::vector<int64_t> histogram;
};
inline constexpr std::array<int, 7> kLengthPercentiles = {1, 10, 25, 50, 75, 90, 99};
LengthStatistics measure_lengths(std::vector<int32_t> lengths);

struct DatasetStatistics {
  int64_t documents = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  LengthStatistics lengths;
  int64_t distinct_tokens = 0;
  int64_t largest_token = -1;
  int64_t eod_tokens = 0;       // occurrences of eod, if one is given
  int64_t documents_ended = 0;  // documents whose last token is eod, if one is given
  double unigram_entropy = 0;   // nats per token
};
// Reads the whole .bin. eod: the id to count.
DatasetStatistics measure(const IndexedDataset& dataset, std::optional<int32_t> eod = std::nullopt);

}  // namespace ms::train
