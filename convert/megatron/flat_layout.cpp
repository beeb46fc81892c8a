#include "convert/megatron/flat_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ms::convert {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kBucketAlignment = 128;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

FlatLayout flat_layout(std::span<const FlatParameter> parameters, const FlatRule& rule) {
  FlatLayout layout;
  layout.begin.resize(parameters.size());
  int64_t at = 0, bucket = 0;
  bool bucket_is_empty = true;
  for (size_t i = parameters.size(); i-- > 0;) {
    const FlatParameter& parameter = parameters[i];
    if (rule.aligned) at = bucket + round_up(at - bucket, kAlignment);
    if (parameter.is_shared_embedding && !bucket_is_empty) {
      if (rule.shared_multiple > 0) at = bucket + round_up(at - bucket, rule.shared_multiple);
      bucket = at;
    }
    layout.begin[i] = at;
    at += parameter.elements;
    bucket_is_empty = false;
    if (parameter.is_shared_embedding || (rule.bucket_size > 0 && at - bucket >= rule.bucket_size)) {
      bucket = at;
      bucket_is_empty = true;
    }
  }
  layout.end = at;
  return layout;
}

std::optional<std::vector<BucketPlace>> places_in_buckets(std::span<const FlatParameter> parameters,
                                                          std::span<const int64_t> lengths, bool aligned,
                                                          int64_t padding) {
  std::vector<BucketPlace> places(parameters.size());
  size_t bucket = 0;
  int64_t at = 0;
  const auto close = [&](bool before_shared) {  // closes the bucket, whose last parameter ends at `at`
    const int64_t rest = lengths[bucket] - at;
    ++bucket;
    at = 0;
    return rest >= 0 && (before_shared || rest <= padding);
  };
  for (size_t i = parameters.size(); i-- > 0;) {
    const FlatParameter& parameter = parameters[i];
    if (bucket == lengths.size()) return std::nullopt;
    int64_t begin = aligned ? round_up(at, kAlignment) : at;
    const bool is_next = parameter.is_shared_embedding || begin + parameter.elements > lengths[bucket];
    if (is_next && at > 0) {
      if (!close(parameter.is_shared_embedding) || bucket == lengths.size()) return std::nullopt;
      begin = 0;
    }
    places[i] = {bucket, begin};
    at = begin + parameter.elements;
    if (at > lengths[bucket]) return std::nullopt;
    if (parameter.is_shared_embedding && !close(false)) return std::nullopt;
  }
  if (at > 0 && !close(false)) return std::nullopt;
  return bucket == lengths.size() ? std::optional(std::move(places)) : std::nullopt;
}

std::vector<FlatLayout> possible_flat_layouts(std::span<const FlatParameter> parameters, int64_t elements,
                                              int64_t bucket_size, int64_t dp) {
  std::vector<FlatLayout> layouts;
  for (const bool aligned : {true, false}) {
    // Default bucket sizes: megatron/core/distributed/distributed_data_parallel.py.
    for (const int64_t size : {int64_t{0}, bucket_size, std::max<int64_t>(40'000'000, 1'000'000 * dp)}) {
      for (const int64_t multiple : {int64_t{0}, std::lcm(dp, kBucketAlignment)}) {
        FlatLayout layout = flat_layout(parameters, {aligned, size, multiple});
        if (layout.end != elements || std::find(layouts.begin(), layouts.end(), layout) != layouts.end()) continue;
        layouts.push_back(std::move(layout));
      }
    }
  }
  return layouts;
}

}  // namespace ms::convert
