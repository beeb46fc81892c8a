// All tensors of a source, merged from their shards, for comparison with another source.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/source.h"
#include "core/error.h"
#include "tests/convert/whole_tensor.h"

namespace ms::test {

struct TensorOfSource {
  core::DType dtype = core::DType::kFp32;
  core::Dims shape;
  std::vector<std::byte> bytes;
};
using TensorsOfSource = std::map<std::pair<core::TensorRole, std::string>, TensorOfSource>;

inline TensorsOfSource tensors_of(ckpt::Source& source) {
  TensorsOfSource tensors;
  const ckpt::ShardTable& shards = source.shards();
  for (int32_t t = 0; t < static_cast<int32_t>(shards.num_tensors()); ++t) {
    const std::string key(shards.key(t));
    const auto shape = shards.global_shape(t);
    tensors[{shards.role(t), key}] = {
        shards.dtype(t), {shape.begin(), shape.end()}, whole_tensor(source, key, shards.role(t))};
  }
  return tensors;
}

// Returns the name and offset of the first byte that differs from `wanted`; empty if tensors and names are equal.
inline std::string first_difference(const TensorsOfSource& seen, const TensorsOfSource& wanted) {
  const auto name = [](const auto& entry) {
    return core::cat(core::role_name(entry.first.first), " of ", entry.first.second);
  };
  for (const auto& entry : seen) {
    if (!wanted.contains(entry.first)) return core::cat(name(entry), " is one too many");
  }
  for (const auto& entry : wanted) {
    const auto found = seen.find(entry.first);
    if (found == seen.end()) return core::cat(name(entry), " is missing");
    const TensorOfSource &a = found->second, &b = entry.second;
    if (a.dtype != b.dtype || a.shape != b.shape) {
      return core::cat(name(entry), " is ", core::dtype_name(a.dtype), a.shape, ", not ", core::dtype_name(b.dtype),
                       b.shape);
    }
    if (a.bytes == b.bytes) continue;
    const auto at = std::mismatch(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()).first;
    return core::cat(name(entry), " differs at element ", (at - a.bytes.begin()) / core::size_of(a.dtype), " of ",
                     a.shape);
  }
  return "";
}

}  // namespace ms::test
