#include "core/layout/gradient_buckets.h"

#include <algorithm>
#include <ranges>

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

std::vector<FlatRange> gradient_buckets(const BufferCut& cut, const BucketSettings& settings) {
  std::vector<FlatRange> buckets;
  const auto add = [&](const BufferCut::Unit& unit) {
    const auto [begin, end] = unit.range;
    if (begin == end) return;
    const int64_t least = cut.cuts_layers() ? 0 : bucket_elems(settings, unit.num_replicas, unit.num_elements);
    for (const FlatRange& bucket : gradient_buckets(unit.starts, end - begin, least))
      buckets.push_back({begin + bucket.begin, begin + bucket.end});
  };
  if (cut.cuts_layers()) {
    std::ranges::for_each(std::views::reverse(cut.units()), add);
  } else {
    std::ranges::for_each(cut.units(), add);
  }
  if (buckets.empty()) buckets.push_back({});
  return buckets;
}

}  // namespace ms::layout
