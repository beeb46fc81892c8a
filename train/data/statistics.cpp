#include "train/data/statistics.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

namespace ms::train {

double entropy_nats(std::span<const int64_t> counts) {
  double total = 0;
  for (const int64_t count : counts) total += static_cast<double>(count);
  double entropy = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / total;
    entropy -= p * std::log(p);
  }
  return entropy;
}

DatasetStatistics measure(const IndexedDataset& dataset) {
  constexpr size_t kPiece = 1 << 16;
  constexpr size_t kDense = 1 << 20;  // ids below are counted in an array, the rest in a map: a file may hold any id
  DatasetStatistics out;
  out.documents = dataset.num_documents();
  out.sequences = dataset.num_sequences();
  out.tokens = dataset.num_tokens();
  std::vector<int64_t> counts(kDense, 0);
  std::unordered_map<int32_t, int64_t> rare;
  std::vector<int32_t> tokens;
  for (int64_t s = 0; s < out.sequences; ++s) {
    const int64_t length = dataset.sequence_length(s);
    out.shortest = s == 0 ? length : std::min(out.shortest, length);
    out.longest = std::max(out.longest, length);
    for (int64_t at = 0; at < length; at += static_cast<int64_t>(tokens.size())) {
      tokens.resize(std::min(kPiece, static_cast<size_t>(length - at)));
      dataset.read(s, at, tokens);
      for (const int32_t token : tokens) {
        ++(static_cast<size_t>(token) < kDense ? counts[static_cast<size_t>(token)] : rare[token]);
        out.largest_token = std::max<int64_t>(out.largest_token, token);
      }
    }
  }
  for (const auto& [token, count] : rare) counts.push_back(count);
  out.distinct_tokens = std::count_if(counts.begin(), counts.end(), [](int64_t count) { return count > 0; });
  out.unigram_entropy = entropy_nats(counts);
  return out;
}

}  // namespace ms::train
