// Counts the contents of a data set, for `msdata inspect`.
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
  // The smallest length that is not exceeded by at least 1, 10, 25, 50, 75, 90, 99 percent of the sequences.
  std::array<int64_t, 7> percentiles{};
  // Number of sequences without a token; then of those of 1 token, 2 to 3, 4 to 7, .., up to the longest.
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
