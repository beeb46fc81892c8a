// Lists the tensors of a Hugging Face model, and the boxes of canonical tensors that each consists of: applies a
// family's names (family.h) to a model.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"
#include "core/layout/parameter_specs.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

// Rows [row, row + extent[0]) of a Hugging Face tensor (columns, if it is transposed) are the box [offset, offset +
// extent) of canonical tensor `key`.
struct TensorPiece {
  int64_t row = 0;
  core::Dims offset;
  core::Dims extent;
};

struct MappedTensor {
  std::string name;         // Hugging Face name
  core::Dims shape;         // of the Hugging Face tensor
  std::string key;          // canonical
  core::Dims global_shape;  // of the canonical tensor
  bool transposed = false;
  core::TensorRole role = core::TensorRole::kParam;  // or kBuffer
  bool is_copy = false;                              // copy of another tensor
  std::string also;                                  // alternative name; empty: none
  // If not negative, `also` is a tensor [experts, packed_rows, columns], and this is its slab from packed_row on.
  int64_t expert = -1, packed_row = 0, packed_rows = 0;
  std::vector<TensorPiece> pieces;
};

// Calls visit for every tensor of a model, in the order in which transformers writes them. The pieces of all tensors
// except copies tile the canonical tensors exactly. config: resolved, with the true vocab_size.
void for_each_tensor(const Family& family, const core::TransformerConfig& config,
                     const std::function<void(const MappedTensor&)>& visit);

// Returns the left side of a name map: "decoder.layers.{layer}.mlp.linear_fc1.weight", with {expert} for an expert's
// index. In a multi-token prediction layer, the parameters of its transformer layer have these names, the others begin
// with "mtp.layers.{layer}.".
std::string name_in_maps(const layout::ParameterSpec& spec);

// Throws kInvalidArgument, naming all of them, if the family's rules do not cover every parameter of the model: for a
// user's map, or a model that the family does not support.
void check_named(const Family& family, const core::TransformerConfig& config, std::string_view where);

// Whether tensors of these parts cover the canonical parameter.
bool is_whole(const std::multiset<Part>& parts, std::string_view canonical);

// Returns, for example, "model.layers.61.": the prefix of layer `layer`'s tensors; layers from num_layers on are
// multi-token prediction layers.
std::string layer_prefix(const Family& family, int64_t layer);

// Returns true for a tensor that a folder may contain in addition and that carries no weights (rotary inv_freq, GPT-2's
// masks).
bool is_ignored_buffer(std::string_view hf_name);

}  // namespace ms::convert
