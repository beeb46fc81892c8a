// A piece of a rank's memory to store in a checkpoint.
#pragma once

#include <cstddef>

#include "core/sharded_tensor.h"

namespace ms::ckpt {

struct ShardData {
  core::ShardedTensor meta;
  const std::byte* data = nullptr;  // dense, row-major, meta.local_shape of meta.dtype; not owned
};

}  // namespace ms::ckpt
