// A Megatron or MindSpeed-LLM checkpoint of --ckpt-format torch (mp_rank_* folders) as a ckpt::Source.
//
// Every rank's tensors are boxes of canonical ones by ckpt/layout.h; names are those of megatron-core with its own
// layers or Transformer Engine's, or of the GPT before it. Weights, and the optimizer state of both of Megatron's
// optimizers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "convert/megatron/layer_map.h"

namespace ms::convert {

struct MegatronOptions {
  int64_t true_vocab_size = 0;  // 0: args.vocab_size, or all rows
  bool drop_optimizer = false;  // its state is not looked at, so it may be of any kind
  // Of a tree. What MindSpeed-LLM's pipeline was, where args do not say it; and, where they are not Megatron's but of
  // MindSpeed-LLM's converter (megatron/converter_args.h), the folder of the whole config.json.
  PipelineExtras extras;
  std::string hf_cfg_dir;
};

// path: the root or an iteration's folder (megatron/tree.h). What was not simply taken over is appended to
// `decisions`, one sentence each.
//
// Parameters that every tensor-parallel rank holds whole must be the same on all, bit for bit, and so must the copy of
// tied word embeddings on the last stage. Throws kCorruptData (a rank, file or tensor is missing, damaged, of another
// shape than args say), kUnsupported (experts, checkpoint_version below 2, what TransformerConfig cannot say).
std::unique_ptr<ckpt::Source> open_megatron(const std::string& path, const MegatronOptions& options,
                                            std::vector<std::string>& decisions);

}  // namespace ms::convert
