// Where parameters lie in the flat buffers of Megatron's distributed optimizer, as distrib_optim.pt stores them.
//
// Parameters are laid out in the reverse order of their registration, each at a multiple of 64 elements within its
// bucket; a bucket that has grown to bucket_size is closed, and what pads its end in memory is not stored. A copy of
// shared embeddings has a bucket of its own.
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
  int64_t shared_multiple = 0;  // megatron-core 0.12: the bucket before a shared embedding is padded to it; 0: is not
};

struct FlatLayout {
  std::vector<int64_t> begin;  // of each parameter
  int64_t end = 0;
  bool operator==(const FlatLayout&) const = default;
};

// parameters: in the order of registration.
FlatLayout flat_layout(std::span<const FlatParameter> parameters, const FlatRule& rule);

// The different layouts that these parameters can have had, of `elements` in all. bucket_size: the one asked for
// (ddp_bucket_size), 0 for none; dp: data-parallel x context-parallel size.
std::vector<FlatLayout> possible_flat_layouts(std::span<const FlatParameter> parameters, int64_t elements,
                                              int64_t bucket_size, int64_t dp);

// Of buckets that are stored one by one: which of them a parameter is in, and where in it.
struct BucketPlace {
  size_t bucket = 0;
  int64_t begin = 0;
  bool operator==(const BucketPlace&) const = default;
};

// The places in buckets of these lengths; nothing if those are not the buckets of these parameters. Behind a bucket's
// last parameter may lie `padding` elements at most, in front of a shared embedding any number.
std::optional<std::vector<BucketPlace>> places_in_buckets(std::span<const FlatParameter> parameters,
                                                          std::span<const int64_t> lengths, bool aligned,
                                                          int64_t padding);

}  // namespace ms::convert
