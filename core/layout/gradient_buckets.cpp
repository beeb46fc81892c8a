#include "core/layout/gradient_buckets.h"

#include <algorithm>

namespace ms::layout {

int64_t bucket_elems(const BucketSettings& settings, int dp_size, int64_t num_parameters) {
  constexpr int64_t kLeastSize = 40'000'000, kLeastOfEachRank = 1'000'000;
  if (!settings.overlapped || dp_size == 1) return 0;
  if (settings.num_buckets > 0) return std::max<int64_t>(1, num_parameters / settings.num_buckets);
  if (settings.bucket_size > 0) return settings.bucket_size;
  return std::max(kLeastSize, kLeastOfEachRank * dp_size);
}

std::vector<FlatRange> gradient_buckets(std::span<const int64_t> starts, int64_t buffer_elems, int64_t bucket_elems) {
  std::vector<FlatRange> buckets;
  int64_t end = buffer_elems;
  for (size_t i = starts.size(); i-- > 1 && bucket_elems > 0;) {
    if (end - starts[i] < bucket_elems) continue;
    buckets.push_back({starts[i], end});
    end = starts[i];
  }
  if (end > 0 || buckets.empty()) buckets.push_back({0, end});
  return buckets;
}

std::vector<int64_t> owned_counts(FlatRange bucket, int64_t buffer_elems, int dp_size) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < dp_size; ++rank) {
    const FlatRange block = block_of_buffer(buffer_elems, dp_size, rank);
    counts.push_back(std::max<int64_t>(0, std::min(block.end, bucket.end) - std::max(block.begin, bucket.begin)));
  }
  return counts;
}

std::vector<FlatRange> buckets_of_section(const BucketSettings& settings, const BufferSection& section,
                                          std::span<const int64_t> starts, int64_t num_parameters) {
  const auto [begin, end] = section.range;
  std::vector<FlatRange> buckets =
      gradient_buckets(starts, end - begin, bucket_elems(settings, section.num_replicas, num_parameters));
  for (FlatRange& bucket : buckets) bucket = {begin + bucket.begin, begin + bucket.end};
  return buckets;
}

std::vector<int64_t> owned_counts(FlatRange bucket, const BufferSection& section) {
  const auto [begin, end] = section.range;
  return owned_counts({bucket.begin - begin, bucket.end - begin}, end - begin, section.num_replicas);
}

FlatRange owned_range(const BufferSection& section, int rank, bool distributed) {
  const auto [begin, end] = section.range;
  if (!distributed) return section.range;
  const FlatRange block = block_of_buffer(end - begin, section.num_replicas, rank);
  return {begin + block.begin, begin + block.end};
}

}  // namespace ms::layout
