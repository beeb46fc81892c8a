// What a data set holds, counted: `msdata inspect`.
#pragma once

#include <cstdint>
#include <span>

#include "train/data/indexed_dataset.h"

namespace ms::train {

// Shannon entropy of the distribution that counts describe, in nats: the loss of a model that knows only how often each
// token occurs. 0 for no counts.
double entropy_nats(std::span<const int64_t> counts);

struct DatasetStatistics {
  int64_t documents = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t shortest = 0;  // sequence, in tokens
  int64_t longest = 0;
  int64_t distinct_tokens = 0;
  int64_t largest_token = -1;
  double unigram_entropy = 0;  // nats per token
};
// Reads the whole .bin.
DatasetStatistics measure(const IndexedDataset& dataset);

}  // namespace ms::train
