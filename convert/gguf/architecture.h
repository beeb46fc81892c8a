// How llama.cpp calls models, their numbers and their tensors.
//
// Source: llama.cpp's gguf-py/gguf/constants.py (MODEL_TENSORS, Keys) and tensor_mapping.py, and what
// src/llama-model.cpp reads of each architecture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"
#include "convert/gguf/layout.h"
#include "convert/name_map.h"
#include "core/transformer_config.h"

namespace ms::convert {

// "llama", "qwen2", ..: general.architecture. Throws kUnsupported for a family that it does not have, naming those it
// has, and for a model that it computes otherwise than we do.
std::string_view gguf_architecture(const Family& family, const core::TransformerConfig& model);

// "blk.3.attn_q.weight" of "model.layers.3.self_attn.q_proj.weight". All experts of a layer have one name.
std::string gguf_tensor_name(const Family& family, std::string_view hf_name);

// Rows of q and k are in the order of rotary pairs that are neighbours: of ours, two halves of each head, row j of half
// h is there row 2 j + h.
bool gguf_permutes_heads(std::string_view architecture, std::string_view gguf_name);

// A tensor of Hugging Face's as a file has it.
struct GgufPart {
  std::string tensor;     // whose it is, or of all experts of the layer
  core::Dims shape;       // rows first; of an expert without the axis of experts
  int64_t columns = 1;    // of a row of `shape`, if it is a matrix
  int64_t head_rows = 0;  // rows are put into another order (gguf_permutes_heads) within heads of so many; 0: not
  bool plus_one = false;  // 1 is added to each element
};
GgufPart gguf_part(const Family& family, const core::TransformerConfig& model, const MappedTensor& mapped);

// A matrix that is fp32 in any file: positions, and what chooses experts.
bool gguf_is_exact(std::string_view gguf_name);

// All that is said of the model besides its tokenizer. Appends to `decisions` what llama.cpp will not do as we do.
void add_gguf_model(std::string_view architecture, const core::TransformerConfig& model, GgufValues& values,
                    std::vector<std::string>& decisions);

// Factors of the rotary frequencies, for the tensor rope_freqs.weight: empty, or [rotary_dim / 2] for llama3's scaling.
std::vector<float> gguf_rope_factors(const core::TransformerConfig& model);

}  // namespace ms::convert
