// Hashes of the rows and columns of a matrix, computed piece by piece in any order: they show which rows moved where
// without holding the matrix.
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/detail/paired_reading.h"
#include "ckpt/detail/tensor_parts.h"

namespace ms::ckpt::detail {

// One per part of a tensor: [rows, columns], where columns are all axes but the first.
struct PartHashes {
  std::vector<uint64_t> rows;
  std::vector<uint64_t> columns;
  std::vector<uint64_t> turned;  // row hashes of the same elements in the same order, viewed as [columns, rows]
};

class RowHashes {
 public:
  RowHashes(const TensorParts& parts, std::span<const int64_t> shape);

  // Adds the elements of the box `place` of the global tensor.
  void add(const core::ShardedTensor& place, const std::byte* data);
  const PartHashes& of(size_t part) const { return parts_hashes_[part]; }

 private:
  const TensorParts& parts_;
  core::Dims shape_;
  int64_t columns_ = 1;
  std::vector<PartHashes> parts_hashes_;
};

}  // namespace ms::ckpt::detail
