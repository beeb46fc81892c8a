// Opens a Megatron or MindSpeed-LLM checkpoint of --ckpt-format torch (mp_rank_* folders) as a ckpt::Source.
//
// Every rank's tensors are boxes of canonical ones (core/layout/tensor_cut.h). Names are those of megatron-core with
// its own layers or Transformer Engine's, or of the GPT before it. Contains weights, and the optimizer state of both of
// Megatron's optimizers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "convert/megatron/layer_map.h"

namespace ms::convert {

struct MegatronOptions {
  int64_t true_vocab_size = 0;  // 0: args.vocab_size, or all rows
  bool drop_optimizer = false;  // skip optimizer state, which may then be of any kind
  // For a tree: MindSpeed-LLM's pipeline options, if args lack them, and the folder of the complete config.json, if
  // args come from MindSpeed-LLM's converter (megatron/converter_args.h) instead of Megatron.
  PipelineExtras extras;
  std::string hf_cfg_dir;
};

// path: the root or an iteration's folder (megatron/tree.h). Appends to `decisions` one sentence for each thing that
// was not simply copied.
//
// Replicas on tensor-parallel ranks must be bitwise equal, and so must the copy of tied word embeddings on the last
// stage. Throws kCorruptData (a rank, file or tensor is missing, damaged, or differs in shape from args), kUnsupported
// (experts, checkpoint_version below 2, models that TransformerConfig cannot express).
std::unique_ptr<ckpt::Source> open_megatron(const std::string& path, const MegatronOptions& options,
                                            std::vector<std::string>& decisions);

}  // namespace ms::convert
