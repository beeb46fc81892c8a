// Documents whose lengths are distributed log-normally, as those of web text are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/rng.h"
#include "train/data/indexed_dataset.h"

namespace ms::test {

// median: tokens. sigma: standard deviation of the logarithm. Lengths are 2 tokens or more.
inline std::vector<int64_t> log_normal_lengths(int64_t count, double median, double sigma, uint64_t seed) {
  const core::Rng rng(seed, "lengths of documents");
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    const double length = median * std::exp(sigma * static_cast<double>(rng.normal(static_cast<uint64_t>(i))));
    lengths.push_back(std::max<int64_t>(2, std::lround(length)));
  }
  return lengths;
}

// A data set of such documents, of bytes and an end-of-document token, 256, at `prefix`.
inline void write_documents(const std::string& prefix, const std::vector<int64_t>& lengths) {
  train::IndexedDatasetBuilder builder(prefix, train::token_type_for_vocab(257));
  const core::Rng rng(5, "tokens of documents");
  uint64_t draw = 0;
  for (const int64_t length : lengths) {
    std::vector<int32_t> tokens;
    for (int64_t i = 1; i < length; ++i) tokens.push_back(static_cast<int32_t>(rng.below(draw++, 256)));
    tokens.push_back(256);
    builder.add_document(tokens);
  }
  builder.finalize();
}

}  // namespace ms::test
