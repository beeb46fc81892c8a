// Builds the rotary table of a model: plain frequencies, or scaled ones for contexts longer than the model was trained
// on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/arena.h"
#include "core/transformer_config.h"
#include "train/ops/rope.h"

namespace ms::train {

struct TrainerConfig;

// Inverse frequencies of a head's pairs, [rotary_dim / 2], by --rope-scaling-type:
//   linear   all divided by the factor (Chen et al. 2023)
//   dynamic  NTK: a larger base once the sequence exceeds max_position_embeddings (bloc97 2023)
//   llama3   long wavelengths divided, short ones kept, a ramp between (Llama 3.1)
//   yarn     by how often a pair turns within the original context (Peng et al. 2023, section 3.2)
//   longrope divided pair by pair, by one list up to the original context and by another beyond (Ding et al. 2024)
// every step in fp32 as transformers' modeling_rope_utils.py computes it. seq_length: of the text, for dynamic and
// longrope.
std::vector<float> rotary_inverse_frequencies(const core::TransformerConfig& config, int64_t seq_length);

// Whether the frequencies differ between texts of these two lengths, so that a table is of one of them only.
bool rotary_frequencies_differ(const core::TransformerConfig& config, int64_t seq_length, int64_t other);

// What multiplies cosines and sines: the attention factor of YaRN and longrope, else 1.
double rotary_attention_factor(const core::TransformerConfig& config);

// What multiplies the scores of latent attention besides the root of the head size: with YaRN the square of the
// magnitude that --rope-scaling-mscale-all-dim says (DeepSeek-V2; megatron/core/transformer/multi_latent_attention.py),
// else 1.
double latent_score_factor(const core::TransformerConfig& config);

// The table of these positions of texts of seq_length tokens; nothing where the model has no rotary embedding.
std::optional<ops::RopeTable> make_rope_table(core::Arena& arena, const core::TransformerConfig& config,
                                              std::vector<ops::PositionSpan> positions, int64_t seq_length);

// The tables of the layers: with --rotary-base-local those with a window have one of that base, unscaled (Gemma 3).
class RotaryTables {
 public:
  // Of the positions of number cp_rank (rotary_positions()). Both references outlive it; layers refer to its tables.
  RotaryTables(core::Arena& arena, const TrainerConfig& config, int cp_rank);
  RotaryTables(const RotaryTables&) = delete;

  // layer: global index. Null where the model has no rotary embedding.
  const ops::RopeTable* of_layer(int64_t layer) const;
  // From now on for texts of so many tokens.
  void set_text_length(int64_t tokens);

 private:
  core::Arena& arena_;
  const core::TransformerConfig& config_;
  std::vector<ops::PositionSpan> positions_;
  int64_t text_length_;
  std::optional<ops::RopeTable> table_, local_;
};

}  // namespace ms::train
