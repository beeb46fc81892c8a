// The weights of a Megatron tree: which tensor of which file is which parameter, by the layout algebra of
// ckpt/layout.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "ckpt/layout.h"
#include "convert/megatron.h"
#include "convert/megatron/layer_map.h"
#include "convert/megatron/tree.h"
#include "core/transformer_config.h"

namespace ms::convert {

// Of a parameter that lies in several tensors: of every block of `each` rows, a head's, the tensor has `count` from
// `first` on. each 0: it has all.
struct RowsOfBlocks {
  int64_t each = 0, first = 0, count = 0;
};

struct MegatronParameter {
  size_t spec = 0;            // index into MegatronModel::specs
  std::string name;           // in the file
  TorchTensor tensor;         // of a tree to be written: its type and shape
  bool is_tied_copy = false;  // of the word embeddings, on the last stage
  bool is_grouped = false;    // of experts that lie in one tensor, turned (names.h, is_grouped_experts)
  int64_t in_tensor = 1;      // how many lie in its tensor; 0: not the first of these, which they follow
  RowsOfBlocks rows;          // of the rank's part, that are in its tensor
};

// Of the first parameter of a tensor: what is stored of it, experts x inputs x outputs seen as a matrix where it is one
// of several experts, the rows of all where it is one of joined projections. Source:
// megatron/core/transformer/moe/experts.py (GroupedMLP).
std::vector<uint64_t> stored_shape(const MegatronParameter& parameter);
// All that lie in its tensor.
inline std::span<const MegatronParameter> all_in_tensor(const MegatronParameter& first) {
  return {&first, static_cast<size_t>(first.in_tensor)};
}

// A virtual pipeline stage, in the order of the file, which is the one in which Megatron registers parameters.
using MegatronChunk = std::vector<MegatronParameter>;

struct MegatronModel {
  core::TransformerConfig config;
  core::TransformerConfig padded;  // the same, but padded_vocab_size(tp) is what the tree holds
  ckpt::ModelLayout layout;        // of few data-parallel ranks; how many layers a chunk has is told by its keys
  MegatronLayerMap layers;
  ExpertGrid experts;
  std::vector<ckpt::ParameterSpec> specs;
  nlohmann::json hf_config;             // of a tree that MindSpeed-LLM's converter wrote (converter_args.h); else null
  bool has_joined_projections = false;  // latent attention is MindSpeed-LLM's, with one linear_qkv for two projections

  // Whether chunk `chunk` of stage `pp` has the parameter; of tied embeddings the first, not the copy's.
  bool chunk_holds(const ckpt::ParameterSpec& spec, int pp, int chunk) const;
  // Whether a rank of the stage has this expert; of what is no expert's, every rank has it.
  bool rank_holds(const ckpt::ParameterSpec& spec, int tp, int ep) const;
  // The spec of a parameter of the plan that all ranks share (stage_plan.h): of an expert, that of the rank's own.
  size_t spec_on_rank(size_t spec, int tp, int ep) const;
  // Into how many parts the parameter is cut, and which of them the rank has.
  struct Cut {
    int size = 1, rank = 0;
  };
  Cut cut_of(const ckpt::ParameterSpec& spec, int tp) const;

  std::vector<std::vector<MegatronChunk>> chunks;  // of each rank of the tree
};

// Appends to `decisions` what was not simply taken over, one sentence each. Every rank holds exactly the parameters
// that its stage has, each of the shape that args say. Throws kCorruptData if not, naming file and tensor; kUnsupported
// for a checkpoint_version below 2 and for a tensor that no model of ours has.
MegatronModel read_megatron_model(const MegatronTree& tree, const MegatronOptions& options,
                                  std::vector<std::string>& decisions);

}  // namespace ms::convert
