#include "ckpt/detail/tensor_parts.h"

#include <numeric>

namespace ms::ckpt::detail {

TensorParts::TensorParts(std::string_view key, std::span<const int64_t> shape, const core::TransformerConfig* model) {
  const int64_t rows = shape.empty() ? 1 : shape[0];
  const auto ends_with = [&](std::string_view name) {
    return key.ends_with(std::string(name) + ".weight") || key.ends_with(std::string(name) + ".bias");
  };
  if (model != nullptr && ends_with("linear_qkv") && model->query_groups() > 0) {
    const int64_t groups = model->query_groups(), head = model->kv_channels;
    const int64_t queries = model->num_attention_heads / groups * head;
    const int64_t gates = model->attention_output_gate ? queries : 0;
    if (head > 0 && rows == groups * (queries + gates + 2 * head)) {
      names_ = {"q", "k", "v"};
      rows_ = {queries, head, head};
      if (gates > 0) names_.insert(names_.begin() + 1, "gate"), rows_.insert(rows_.begin() + 1, gates);
      blocks_ = groups;
    }
  } else if (model != nullptr && ends_with("linear_fc1") && model->gated() && rows % 2 == 0) {
    names_ = {"gate", "up"};
    rows_ = {rows / 2, rows / 2};
  }
  if (names_.empty()) {
    names_ = {""};
    rows_ = {rows};
  }
  block_rows_ = std::accumulate(rows_.begin(), rows_.end(), int64_t{0});
}

TensorParts::Row TensorParts::of_row(int64_t row) const {
  const int64_t block = row / block_rows_;
  int64_t within = row % block_rows_;
  size_t part = 0;
  while (within >= rows_[part]) within -= rows_[part++];
  return {part, block * rows_[part] + within};
}

int64_t TensorParts::row_of(Row place) const {
  const int64_t before =
      std::accumulate(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(place.part), int64_t{0});
  return place.index / rows_[place.part] * block_rows_ + before + place.index % rows_[place.part];
}

}  // namespace ms::ckpt::detail
