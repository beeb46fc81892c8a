// Reads the weights of a Megatron tree: matches the tensors of its files with the parameters of the model, using the
// layout rules of core/layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convert/megatron.h"
#include "convert/megatron/layer_map.h"
#include "convert/megatron/tree.h"
#include "core/io/json.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"
#include "core/transformer_config.h"

namespace ms::convert {

// For a parameter split over several tensors: the rows that a tensor has of every block of `each` rows (a head), which
// are `count` rows from `first` on. each 0: all rows.
struct RowsOfBlocks {
  int64_t each = 0, first = 0, count = 0;
};

struct MegatronParameter {
  size_t spec = 0;            // index into MegatronModel::specs
  std::string name;           // tensor name in the file
  TorchTensor tensor;         // for a tree to be written: dtype and shape only
  bool is_tied_copy = false;  // copy of the word embeddings on the last stage
  bool is_grouped = false;    // one of several experts stored transposed in one tensor (names.h, is_grouped_experts)
  int64_t in_tensor = 1;      // number of parameters in its tensor; 0: not the first of them. They are consecutive
  RowsOfBlocks rows;          // the rows of the rank's part that its tensor has
};

// Returns the stored shape, for the first parameter of a tensor. Grouped experts (experts x inputs x outputs) are
// viewed as a matrix; joined projections have the rows of all.
// Source: megatron/core/transformer/moe/experts.py (GroupedMLP).
std::vector<uint64_t> stored_shape(const MegatronParameter& parameter);
// Returns all parameters of its tensor.
inline std::span<const MegatronParameter> all_in_tensor(const MegatronParameter& first) {
  return {&first, static_cast<size_t>(first.in_tensor)};
}

// A virtual pipeline stage, in the order of the file, in which Megatron registers parameters.
using MegatronChunk = std::vector<MegatronParameter>;

struct MegatronModel {
  core::TransformerConfig config;
  core::TransformerConfig padded;  // the same with padded_vocab_size(tp), the size that the tree stores
  layout::ModelLayout layout;      // with the fewest data-parallel ranks; the layers per chunk follow from the keys
  MegatronLayerMap layers;
  ExpertGrid experts;
  std::vector<layout::ParameterSpec> specs;
  nlohmann::json hf_config;  // from a tree written by MindSpeed-LLM's converter (converter_args.h); else null
  bool has_joined_projections = false;  // MindSpeed-LLM's latent attention: one linear_qkv for two projections

  // Whether chunk `chunk` of stage `pp` has the parameter; for tied embeddings the original, not the copy.
  bool chunk_holds(const layout::ParameterSpec& spec, int pp, int chunk) const;
  // Whether a rank of the stage has this expert; true for parameters that do not belong to an expert.
  bool rank_holds(const layout::ParameterSpec& spec, int tp, int ep) const;
  // Maps a parameter of the plan that all ranks share (stage_plan.h) to the rank's own: for an expert, the rank's
  // expert.
  size_t spec_on_rank(size_t spec, int tp, int ep) const;
  // The number of parts the parameter is cut into, and the index of the rank's part.
  struct Cut {
    int size = 1, rank = 0;
  };
  Cut cut_of(const layout::ParameterSpec& spec, int tp) const;

  std::vector<std::vector<MegatronChunk>> chunks;  // per rank of the tree
};

// Appends to `decisions` one sentence for each thing that was not copied as it is. Checks that every rank holds exactly
// the parameters of its stage, with the shapes that args imply. Throws kCorruptData otherwise, with file and tensor;
// kUnsupported for a checkpoint_version below 2 and for a tensor that is not part of a supported model.
MegatronModel read_megatron_model(const MegatronTree& tree, const MegatronOptions& options,
                                  std::vector<std::string>& decisions);

}  // namespace ms::convert
