// The bytes of a box in the memory of dense tensors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sharded_tensor.h"

namespace ms::ckpt {

// Copies a box of `extent` elements of item_size bytes between two dense row-major tensors: from source (shape
// source_shape, box at source_offset) to target (shape target_shape, box at target_offset). Runs of whole inner axes
// are merged into one memcpy.
void copy_box(const std::byte* source, const core::Dims& source_shape, const core::Dims& source_offset,
              std::byte* target, const core::Dims& target_shape, const core::Dims& target_offset,
              const core::Dims& extent, int64_t item_size);

// Bytes of the shard's local elements.
inline int64_t bytes_of(const core::ShardedTensor& shard) {
  return core::num_elements(shard.local_shape) * core::size_of(shard.dtype);
}

}  // namespace ms::ckpt
