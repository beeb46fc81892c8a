#include "ckpt/source.h"

#include <algorithm>

namespace ms::ckpt {

bool has_role(const Source& source, core::TensorRole role) {
  const auto shards = source.shards();
  return std::any_of(shards.begin(), shards.end(), [role](const auto& shard) { return shard.role == role; });
}

}  // namespace ms::ckpt
