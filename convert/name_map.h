// Which tensors a Hugging Face model has, and which boxes of our canonical tensors each of them is: a family's names
// (family.h) applied to a model.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/layout.h"
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
  core::TensorRole role = core::TensorRole::kParam;  // or kBuffer
  bool is_copy = false;                              // of what another tensor is
  std::string also;                                  // another name that it may have; empty: none
  // Or, if not negative, a slab of `also`, [experts, packed_rows, columns], from this row on.
  int64_t expert = -1, packed_row = 0, packed_rows = 0;
  std::vector<TensorPiece> pieces;
};

// Calls visit for every tensor of a model, in the order in which transformers writes them. The pieces of all tensors
// but copies tile the canonical tensors exactly. config: resolved, with the true vocab_size.
void for_each_tensor(const Family& family, const core::TransformerConfig& config,
                     const std::function<void(const MappedTensor&)>& visit);

// The left side of a name map: "decoder.layers.{layer}.mlp.linear_fc1.weight", with {expert} for an expert's index. Of
// a layer that predicts further tokens what it has of a layer is the layer's, the rest "mtp.layers.{layer}.".
std::string name_in_maps(const ckpt::ParameterSpec& spec);

// Throws kInvalidArgument, naming them all, if the family's rules do not make every parameter of the model whole: those
// of a user's map, or of a model that the family cannot be.
void check_named(const Family& family, const core::TransformerConfig& config, std::string_view where);

// Whether tensors of these parts make the canonical parameter whole.
bool is_whole(const std::multiset<Part>& parts, std::string_view canonical);

// "model.layers.61.": what the tensors of layer `layer` begin with; those behind num_layers predict further tokens.
std::string layer_prefix(const Family& family, int64_t layer);

// True for a tensor that a folder may hold beyond these and that carries no weights (rotary inv_freq, GPT-2's masks).
bool is_ignored_buffer(std::string_view hf_name);

}  // namespace ms::convert
