#include "train/data/statistics.h"

#include <algorithm>
#include <bit>
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

LengthStatistics measure_lengths(std::vector<int32_t> lengths) {
  LengthStatistics out;
  if (lengths.empty()) return out;
  std::sort(lengths.begin(), lengths.end());
  out.shortest = lengths.front();
  out.longest = lengths.back();
  double sum = 0;
  out.histogram.resize(static_cast<size_t>(std::bit_width(static_cast<uint32_t>(lengths.back()))) + 1);
  for (const int32_t length : lengths) {
    sum += length;
    ++out.histogram[static_cast<size_t>(std::bit_width(static_cast<uint32_t>(length)))];
  }
  out.mean = sum / static_cast<double>(lengths.size());
  for (size_t i = 0; i < kLengthPercentiles.size(); ++i) {
    const size_t rank = (lengths.size() * static_cast<size_t>(kLengthPercentiles[i]) + 99) / 100;  // from 1
    out.percentiles[i] = lengths[rank - 1];
  }
  return out;
}

DatasetStatistics measure(const IndexedDataset& dataset, std::optional<int32_t> eod) {
  constexpr size_t kPiece = 1 << 16;
  constexpr size_t kDense = 1 << 20;  // smaller ids are counted in an array, others in a map: a file may contain any id
  DatasetStatistics out;
  out.documents = dataset.num_documents();
  out.sequences = dataset.num_sequences();
  out.tokens = dataset.num_tokens();
  out.lengths = measure_lengths(dataset.sequence_lengths(0, out.sequences));
  std::vector<int64_t> counts;
  std::unordered_map<int32_t, int64_t> rare;
  std::vector<int32_t> tokens;
  for (int64_t d = 0; d < out.documents; ++d) {
    std::optional<int32_t> last;
    for (int64_t s = dataset.document_index(d); s < dataset.document_index(d + 1); ++s) {
      const int64_t length = dataset.sequence_length(s);
      for (int64_t at = 0; at < length; at += static_cast<int64_t>(tokens.size())) {
        tokens.resize(std::min(kPiece, static_cast<size_t>(length - at)));
        dataset.read(s, at, tokens);
        out.largest_token = std::max<int64_t>(out.largest_token, *std::max_element(tokens.begin(), tokens.end()));
        counts.resize(std::min(kDense, static_cast<size_t>(out.largest_token) + 1));
        for (const int32_t token : tokens) {
          ++(static_cast<size_t>(token) < kDense ? counts[static_cast<size_t>(token)] : rare[token]);
        }
        last = tokens.back();
      }
    }
    out.documents_ended += eod && last == eod ? 1 : 0;
  }
  if (eod && *eod <= out.largest_token) {
    out.eod_tokens = static_cast<size_t>(*eod) < kDense ? counts[static_cast<size_t>(*eod)] : rare[*eod];
  }
  for (const auto& [token, count] : rare) counts.push_back(count);
  out.distinct_tokens = std::count_if(counts.begin(), counts.end(), [](int64_t count) { return count > 0; });
  out.unigram_entropy = entropy_nats(counts);
  return out;
}

}  // namespace ms::train
