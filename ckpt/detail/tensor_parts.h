// Parts of the rows of a canonical tensor: query, key and value rows of linear_qkv, gate and up of a gated linear_fc1.
// Other programs store these as separate tensors, so faults occur per part.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/transformer_config.h"

namespace ms::ckpt::detail {

class TensorParts {
 public:
  struct Row {
    size_t part = 0;
    int64_t index = 0;  // among the part's rows
  };

  // model: null for tensors of no known model, which have one part without a name. A scalar has one row.
  TensorParts(std::string_view key, std::span<const int64_t> shape, const core::TransformerConfig* model);

  size_t size() const { return names_.size(); }
  const std::string& name(size_t part) const { return names_[part]; }
  int64_t rows(size_t part) const { return blocks_ * rows_[part]; }
  Row of_row(int64_t row) const;
  int64_t row_of(Row place) const;  // inverse of of_row

 private:
  std::vector<std::string> names_;
  std::vector<int64_t> rows_;  // per part, within a block
  int64_t block_rows_ = 1;     // rows of all parts together
  int64_t blocks_ = 1;         // groups of heads
};

}  // namespace ms::ckpt::detail
