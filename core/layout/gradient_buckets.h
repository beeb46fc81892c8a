// How a rank's buffer of gradients is cut into buckets, each of which is one message of data parallelism.
//
// Buckets say when parts of the buffer are reduced, never who owns them: that is BufferCut, whatever their size. So the
// ranks add up each element in the same order for any size, and no size changes a bit. With ZeRO each unit of the
// BufferCut is a message: the buckets are the units, and with ZeRO-1 so many are posted at once as make up a size.
// Source: _ParamAndGradBuffer (megatron/core/distributed/param_and_grad_buffer.py).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/layout/buffer_cut.h"

namespace ms::layout {

// With --overlap-grad-reduce; without it there is one bucket.
struct BucketSettings {
  bool overlapped = false;
  int64_t bucket_size = 0;  // --ddp-bucket-size, elements; 0: max(40,000,000, 1,000,000 x data-parallel size)
  int64_t num_buckets = 0;  // --ddp-num-buckets instead; 0: not given
};

// A bucket ends with the parameter that brings it to so many elements. num_parameters: elements of those that train.
// 0: one bucket.
int64_t bucket_elems(const BucketSettings& settings, int dp_size, int64_t num_parameters);

// Of a unit: whole parameters, from the last one, whose gradient is final first, to the first one; the padding of the
// buffer is in the first bucket. starts: of the parameters in the buffer, ascending, the first one 0. At least one
// bucket.
std::vector<FlatRange> gradient_buckets(std::span<const int64_t> starts, int64_t buffer_elems, int64_t bucket_elems);

// Those of the buffer of a rank, as ranges of it: of each unit that has parameters. At least one.
std::vector<FlatRange> gradient_buckets(const BufferCut& cut, const BucketSettings& settings);

}  // namespace ms::layout
