// Which tensors a Hugging Face model of a family has, and which boxes of our canonical tensors each of them is.
//
// A family is data: a row of names for everything outside the layers, one for everything inside, and what its
// config.json implies. Adding a family is adding a Family; nothing else in convert/ branches on one. Sources: the
// modeling files of transformers (names, shapes) and megatron/core/transformer (packing of linear_qkv and linear_fc1).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sharded_tensor.h"
#include "core/transformer_config.h"

namespace ms::convert {

// What a Hugging Face tensor is of its canonical tensor.
enum class Part : uint8_t {
  kWhole,
  kQuery,  // of linear_qkv, which holds per query group: its q heads, its k head, its v head
  kKey,
  kValue,
  kGate,  // first half of linear_fc1's rows
  kUp,    // second half
};

enum class Presence : uint8_t {
  kAlways,
  kQkvBias,      // with add_qkv_bias
  kQkLayernorm,  // with qk_layernorm
  kUntied,       // with untie_embeddings_and_output_weights
};

enum class ShapeRule : uint8_t {
  kVocabByHidden,
  kHidden,
  kHeadDim,
  kQkvByHidden,
  kQkv,
  kHiddenByHeads,
  kFfnByHidden,
  kHiddenByFfn
};

struct NameRule {
  std::string_view hf;         // after "model.layers.N." for those inside a layer
  std::string_view canonical;  // after "decoder.layers.N."
  Part part = Part::kWhole;
  ShapeRule shape = ShapeRule::kHidden;  // of the canonical tensor
  Presence presence = Presence::kAlways;
};

struct Family {
  std::string_view model_type;    // as in config.json
  std::string_view architecture;  // architectures[0]
  bool qkv_bias = false;          // the family always has biases on q, k and v
  bool qk_layernorm = false;
  int64_t default_head_dim = 0;                    // where config.json has none; 0: hidden / heads
  std::span<const NameRule> before, layer, after;  // in the order of the model's state_dict
};

std::span<const Family> families();
// Throws kUnsupported naming the families that are known.
const Family& find_family(std::string_view model_type);
// The family whose config can say what this model is: for a checkpoint that was never a Hugging Face folder. Throws
// kUnsupported if none can.
const Family& family_of_model(const core::TransformerConfig& config);

// Rows [row, row + extent[0]) of a Hugging Face tensor are the box [offset, offset + extent) of canonical tensor `key`.
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
  std::vector<TensorPiece> pieces;
};

// Calls visit for every tensor of a model, in the order of its state_dict. The pieces of all tensors tile the canonical
// tensors exactly. config: resolved, with the true vocab_size.
void for_each_tensor(const Family& family, const core::TransformerConfig& config,
                     const std::function<void(const MappedTensor&)>& visit);

// True for a tensor that a folder may hold beyond these and that carries no weights (rotary inv_freq).
bool is_ignored_buffer(std::string_view hf_name);

inline constexpr std::string_view kHfEmbedding = "model.embed_tokens.weight";
inline constexpr std::string_view kHfOutput = "lm_head.weight";

}  // namespace ms::convert
