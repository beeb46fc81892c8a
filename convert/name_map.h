// Which tensors a Hugging Face model has, and which boxes of our canonical tensors each of them is: a family's names
// (family.h) applied to a model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

// Rows [row, row + extent[0]) of a Hugging Face tensor are the box [offset, offset + extent) of canonical tensor `key`;
// of a transposed one, its columns.
struct TensorPiece {
  int64_t row = 0;
  core::Dims offset;
  core::Dims extent;
};

struct MappedTensor {
  std::string name;         // Hugging Face
  core::Dims shape;         // of the Hugging Face tensor
  std::string key;          // canonical
  core::Dims global_shape;  // of the canonical tensor
  bool transposed = false;
  std::vector<TensorPiece> pieces;
};

// Calls visit for every tensor of a model, in the order of its state_dict. The pieces of all tensors tile the canonical
// tensors exactly. config: resolved, with the true vocab_size.
void for_each_tensor(const Family& family, const core::TransformerConfig& config,
                     const std::function<void(const MappedTensor&)>& visit);

// True for a tensor that a folder may hold beyond these and that carries no weights (rotary inv_freq, GPT-2's masks).
bool is_ignored_buffer(std::string_view hf_name);

}  // namespace ms::convert
