// What `msckpt convert` is asked for, and how the values of its flags are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/execute.h"
#include "convert/format.h"
#include "convert/megatron/layer_map.h"
#include "convert/megatron_target.h"
#include "convert/name_rules.h"
#include "convert/optimizer_flags.h"
#include "convert/script_flags.h"
#include "core/dtype.h"
#include "core/io/bulk_writer.h"

namespace ms::convert {

struct ConvertOptions {
  std::string load_dir;
  std::string save_dir;
  std::optional<Format> load_model_type;  // none: detected
  std::optional<Format> save_model_type;  // none: hf of a native checkpoint, else ms
  int target_tensor_parallel_size = 1;    // of a native or Megatron target (a tree, or torch_dist)
  int target_pipeline_parallel_size = 1;
  int target_data_parallel_size = 1;                  // of a dcp target: ranks of FSDP
  int64_t num_layers_per_virtual_pipeline_stage = 0;  // 0: one chunk a stage
  std::vector<int64_t> num_layer_list;                // of each stage; empty: evenly
  int target_expert_parallel_size = 1;                // of a model with experts, as the next
  std::optional<int> expert_tensor_parallel_size;     // none: target_tensor_parallel_size
  bool moe_tp_extend_ep = false;                      // experts are dealt to target_expert_parallel_size x TP ranks
  std::optional<core::DType> dtype;                   // none: as the source has it. Casts round to nearest even
  // Of a Hugging Face target; none: as the folder of its config.json is split, else 5 GB.
  std::optional<int64_t> max_shard_size_bytes;
  // Of a mg result; or else of a mg source, where its args do not say it. With dualpipev chunks follow from the layers.
  PipelineExtras extras;
  int64_t true_vocab_size = 0;                       // of a Megatron source; 0: as it says itself
  std::optional<MegatronNaming> target_norm_naming;  // of a Megatron target, as the next four; none: local, of
                                                     // torch_dist Transformer Engine's
  bool moe_grouped_gemm = false;                     // experts under the names of grouped ones
  std::optional<MegatronArgsForm> mg_args;           // none: a Namespace
  bool use_distributed_optimizer = false;            // whose state is written
  int64_t make_vocab_size_divisible_by = 0;          // x TP; 0: as the model says
  // config.json and tokenizer files of a Hugging Face target; empty: the source's. What says the model of a DCP or
  // DeepSpeed source, and the rest of it of a mg source that MindSpeed-LLM's converter wrote.
  std::string hf_cfg_dir;
  NameRules names;                            // --rename, --include, --exclude: of a source without a family
  bool as_named = false;                      // its family is not looked at: tensors keep the names of the files
  std::string name_map;                       // names of a Hugging Face source's or target's tensors (user_family.h)
  std::string passthrough;                    // names of a hf source's tensors that pass through (passthrough.h)
  bool drop_passthrough = false;              // leave out what passes through
  std::string passthrough_from;               // folder whose tensors that pass through are added to the source's
  bool allow_custom_model = false;            // a Megatron result of a model that Megatron itself cannot compute
  bool compress = false;                      // a native target
  std::optional<core::WritePath> write_path;  // none: the fastest that works
  bool resume = false;                        // keep what an earlier attempt at the same conversion wrote
  bool drop_optimizer = false;
  OptimizerFlags optimizer;  // settings of the optimizer's state, in place of the source's
  std::string lora;          // folder of an adapter of PEFT that is merged into the weights; empty: none
  bool q8_0 = false;         // matrices of a gguf target in blocks of 8 bits
  bool dry_run = false;
  bool prove = false;                     // read the result again and compare it with the source (ckpt/prove.h)
  std::vector<std::string> command;       // the flags that were given, for the report
  ScriptClaims claims;                    // with model_type_hf a hf, dcp, ucp or gguf result is of that family
  std::vector<std::string> script_flags;  // which of script_flags() were given
  ckpt::ExecuteOptions execute;
};

// "local" or "te"; "namespace", "dict" or "omit". Throw kInvalidArgument naming `flag`.
MegatronNaming parse_norm_naming(const std::string& text, const std::string& flag);
MegatronArgsForm parse_args_form(const std::string& text, const std::string& flag);
// "fp32", "bf16" or "fp16"; throws kInvalidArgument naming `flag` and the values; `also`: one more of the caller's.
core::DType parse_weight_dtype(const std::string& text, const std::string& flag, const std::string& also = "");
// "5GB" (decimal), "500MB", "2GiB", "1000": bytes; throws kInvalidArgument naming `flag`.
int64_t parse_size_bytes(const std::string& text, const std::string& flag);

}  // namespace ms::convert
