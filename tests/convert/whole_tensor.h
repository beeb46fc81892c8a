// A tensor of a source, merged from its shards.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::test {

// Returns its bytes, dense and row-major; empty if the source does not have it.
inline std::vector<std::byte> whole_tensor(ckpt::Source& source, const std::string& key, core::TensorRole role) {
  const ckpt::ShardTable& shards = source.shards();
  const auto tensor = shards.find(key, role);
  if (!tensor) return {};
  const core::Dims shape(shards.global_shape(*tensor).begin(), shards.global_shape(*tensor).end());
  std::vector<std::byte> all(static_cast<size_t>(shards.tensor_bytes(*tensor)));
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards.tensor_of(i) != *tensor) continue;
    source.read_into(static_cast<int32_t>(i), core::Dims(shape.size(), 0), shards.extents(i), all.data(), shape,
                     shards.offsets(i));
  }
  return all;
}

}  // namespace ms::test
