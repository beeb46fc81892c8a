#include "ckpt/source.h"

namespace ms::ckpt {

bool has_role(const Source& source, core::TensorRole role) {
  const ShardTable& shards = source.shards();
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    if (shards.role(static_cast<int32_t>(t)) == role) return true;
  }
  return false;
}

}  // namespace ms::ckpt
