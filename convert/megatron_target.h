// A Megatron checkpoint as the target of a conversion: which parts of which tensors go where in which file, and the
// ckpt::Sink that writes them.
//
// A tree of --ckpt-format torch (megatron.h reads it): every rank's file holds all that Megatron expects there, also
// what others hold the same: norms on every tensor-parallel rank, the copy of tied word embeddings on the last stage.
// torch_dist (megatron_dist.h): every element once, in the file of the first rank that has it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/layout.h"
#include "ckpt/sink.h"
#include "convert/megatron/args.h"
#include "convert/megatron/layer_map.h"
#include "convert/megatron/names.h"
#include "convert/placed_result.h"

namespace ms::convert {

struct MegatronTargetOptions {
  std::string root;                          // iter_0000100, or release, is made in it, and then the tracker
  ckpt::ModelLayout layout;                  // of as few data-parallel ranks as hold all experts
  int64_t make_vocab_size_divisible_by = 0;  // 0: as the model says
  MegatronNaming naming = MegatronNaming::kLocal;
  bool moe_grouped_gemm = false;  // experts are grouped (MegatronSpelling), which changes no key of torch_dist
  bool moe_tp_extend_ep = false;  // the layout's expert-parallel ranks are MindSpeed's, EP x TP of them
  PipelineExtras extras;          // of a tree
  MegatronArgsForm args = MegatronArgsForm::kNamespace;
  bool with_optimizer = false;
  bool allow_custom_model = false;         // also one that Megatron itself cannot compute (megatron_cannot_say)
  bool use_distributed_optimizer = false;  // its state, and not that of the mixed-precision one
  WriteOptions writing;
};

struct MegatronTarget {
  ckpt::ShardTable shards;
  std::unique_ptr<ckpt::Sink> sink;
};

// dtype: of a canonical parameter's weights; optimizer state is fp32. Appends to `decisions` what is not simply copied,
// one sentence each. Throws kInvalidArgument (a layout that the model cannot have; an iteration that is there already),
// kUnsupported (optimizer state that is not Adam's, or not of all parameters).
MegatronTarget make_megatron_tree_target(const ckpt::Source& source, const MegatronTargetOptions& options,
                                         const std::function<core::DType(const std::string& key)>& dtype,
                                         std::vector<std::string>& decisions);
// The same of torch_dist. Keys are megatron-core's by default, the layers stacked; optimizer state is kept by
// parameter. options.naming: which modules have an _extra_state, those of megatron-core's own layers or Transformer
// Engine's too.
MegatronTarget make_megatron_dist_target(const ckpt::Source& source, const MegatronTargetOptions& options,
                                         const std::function<core::DType(const std::string& key)>& dtype,
                                         std::vector<std::string>& decisions);

}  // namespace ms::convert
