// Writes a Megatron checkpoint: plans which part of which tensor goes into which file, and makes the ckpt::Sink.
//
// A tree of --ckpt-format torch (read by megatron.h): every rank's file contains all that Megatron expects in it,
// including replicas: norms on every tensor-parallel rank, the copy of tied word embeddings on the last stage.
// torch_dist (read by megatron_dist.h): every element once, in the file of the first rank that has it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/sink.h"
#include "convert/megatron/args.h"
#include "convert/megatron/layer_map.h"
#include "convert/megatron/names.h"
#include "convert/placed_result.h"
#include "core/layout/model_layout.h"

namespace ms::convert {

struct MegatronTargetOptions {
  std::string root;                          // receives iter_0000100 or release, and then the tracker
  layout::ModelLayout layout;                // with the fewest data-parallel ranks that hold all experts
  int64_t make_vocab_size_divisible_by = 0;  // 0: from the model
  MegatronNaming naming = MegatronNaming::kLocal;
  bool moe_grouped_gemm = false;  // experts are grouped (MegatronSpelling); does not change the keys of torch_dist
  bool moe_tp_extend_ep = false;  // the layout's expert-parallel ranks are MindSpeed's EP x TP
  PipelineExtras extras;          // for a tree
  MegatronArgsForm args = MegatronArgsForm::kNamespace;
  bool with_optimizer = false;
  bool allow_custom_model = false;         // even if Megatron itself cannot compute the model (megatron_cannot_express)
  bool use_distributed_optimizer = false;  // write its state instead of the mixed-precision optimizer's
  WriteOptions writing;
};

struct MegatronTarget {
  ckpt::ShardTable shards;
  std::unique_ptr<ckpt::Sink> sink;
};

// dtype: of a canonical parameter's weights; optimizer state is fp32. Appends to `decisions` one sentence for each
// thing that is not simply copied. Throws kInvalidArgument (a layout that the model cannot have; the iteration exists),
// kUnsupported (optimizer state that is not Adam's, or does not cover all parameters).
MegatronTarget make_megatron_tree_target(const ckpt::Source& source, const MegatronTargetOptions& options,
                                         const std::function<core::DType(const std::string& key)>& dtype,
                                         std::vector<std::string>& decisions);
// The same for torch_dist. Keys are megatron-core's defaults, with stacked layers; optimizer state is stored by
// parameter. options.naming: the modules that have an _extra_state, those of megatron-core's own layers or Transformer
// Engine's too.
MegatronTarget make_megatron_dist_target(const ckpt::Source& source, const MegatronTargetOptions& options,
                                         const std::function<core::DType(const std::string& key)>& dtype,
                                         std::vector<std::string>& decisions);

}  // namespace ms::convert
