// llama.cpp's names of models and tensors, and its metadata keys.
//
// Source: llama.cpp's gguf-py/gguf/constants.py (MODEL_TENSORS, Keys) and tensor_mapping.py, and what
// src/llama-model.cpp reads for each architecture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"
#include "convert/gguf/layout.h"
#include "convert/name_map.h"
#include "core/transformer_config.h"

namespace ms::convert {

// Returns general.architecture: "llama", "qwen2", .. Throws kUnsupported for a family that llama.cpp lacks, naming
// those that it has, and for a model that it would compute differently.
std::string_view gguf_architecture(const Family& family, const core::TransformerConfig& model);

// Returns "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight". All experts of a layer have the same
// name.
std::string gguf_tensor_name(const Family& family, std::string_view hf_name);

// Whether rows of q or k are ordered by neighbouring rotary pairs: row j of half h of a head in our order is row 2 j +
// h.
bool gguf_permutes_heads(std::string_view architecture, std::string_view gguf_name);

// A Hugging Face tensor as stored in the file.
struct GgufPart {
  std::string tensor;     // name of its tensor, or of the tensor of all experts of the layer
  core::Dims shape;       // rows first; for an expert without the axis of experts
  int64_t columns = 1;    // of a row of `shape`, if it is a matrix
  int64_t head_rows = 0;  // reorder rows (gguf_permutes_heads) within heads of this many rows; 0: do not
  bool plus_one = false;  // add 1 to each element
};
GgufPart gguf_part(const Family& family, const core::TransformerConfig& model, const MappedTensor& mapped);

// Whether a matrix is always fp32: positions, and the experts' router.
bool gguf_is_exact(std::string_view gguf_name);

// Adds the metadata of the model, except its tokenizer. Appends to `decisions` what llama.cpp will compute differently.
void add_gguf_model(std::string_view architecture, const core::TransformerConfig& model, GgufValues& values,
                    std::vector<std::string>& decisions);

// Returns the RoPE frequency factors for the tensor rope_freqs.weight: empty, or [rotary_dim / 2] for llama3's scaling.
std::vector<float> gguf_rope_factors(const core::TransformerConfig& model);

}  // namespace ms::convert
