// Computes where parameters lie in the flat buffers of Megatron's distributed optimizer, as stored in distrib_optim.pt.
//
// Parameters are laid out in the reverse order of their registration, each aligned to 64 elements within its bucket. A
// bucket is closed once it has bucket_size elements; the padding at its end in memory is not stored. A copy of shared
// embeddings has its own bucket.
// Source: megatron/core/distributed/param_and_grad_buffer.py (_ParamAndGradBuffer) and
// megatron/core/optimizer/distrib_optimizer.py (get_parameter_state_dp_zero).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ms::convert {

struct FlatParameter {
  int64_t elements = 0;
  bool is_shared_embedding = false;
};

struct FlatRule {
  bool aligned = true;          // false: before megatron-core 0.7
  int64_t bucket_size = 0;      // 0: one bucket
  int64_t shared_multiple = 0;  // megatron-core 0.12: the bucket before a shared embedding is padded to a multiple of
                                // it; 0: not padded
};

struct FlatLayout {
  std::vector<int64_t> begin;  // one per parameter
  int64_t end = 0;
  bool operator==(const FlatLayout&) const = default;
};

// parameters: in registration order.
FlatLayout flat_layout(std::span<const FlatParameter> parameters, const FlatRule& rule);

// Returns the distinct layouts with which these parameters can occupy `elements` elements in total. bucket_size: from
// ddp_bucket_size, 0 if not given; dp: data-parallel x context-parallel size.
std::vector<FlatLayout> possible_flat_layouts(std::span<const FlatParameter> parameters, int64_t elements,
                                              int64_t bucket_size, int64_t dp);

// For buckets stored separately: the bucket that contains a parameter, and its first element in it.
struct BucketPlace {
  size_t bucket = 0;
  int64_t begin = 0;
  bool operator==(const BucketPlace&) const = default;
};

// Returns the places in buckets of these lengths; nullopt if these parameters cannot have such buckets. At most
// `padding` elements may follow a bucket's last parameter; any number may precede a shared embedding.
std::optional<std::vector<BucketPlace>> places_in_buckets(std::span<const FlatParameter> parameters,
                                                          std::span<const int64_t> lengths, bool aligned,
                                                          int64_t padding);

}  // namespace ms::convert
