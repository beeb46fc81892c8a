// The options of `msckpt convert`, and parsers for the values of its flags.
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
  std::optional<Format> load_model_type;  // nullopt: detected
  std::optional<Format> save_model_type;  // nullopt: hf for a native checkpoint, else ms
  int target_tensor_parallel_size = 1;    // for a native or Megatron target (a tree, or torch_dist)
  int target_pipeline_parallel_size = 1;
  int target_data_parallel_size = 1;                  // for a dcp target: number of FSDP ranks
  int64_t num_layers_per_virtual_pipeline_stage = 0;  // 0: one chunk per stage
  std::vector<int64_t> num_layer_list;                // layers per stage; empty: evenly
  int target_expert_parallel_size = 1;                // this and the next two for models with experts
  std::optional<int> expert_tensor_parallel_size;     // nullopt: target_tensor_parallel_size
  bool moe_tp_extend_ep = false;                      // experts are spread over target_expert_parallel_size x TP ranks
  std::optional<core::DType> dtype;                   // nullopt: as in the source. Casts round to nearest even
  // For a Hugging Face target; nullopt: split like the folder of its config.json, else 5 GB.
  std::optional<int64_t> max_shard_size_bytes;
  // For a mg target; otherwise for a mg source whose args lack them. With dualpipev the chunks follow from the layers.
  PipelineExtras extras;
  int64_t true_vocab_size = 0;                       // for a Megatron source; 0: from the source
  std::optional<MegatronNaming> target_norm_naming;  // this and the next four for a Megatron target; nullopt: local,
                                                     // for torch_dist Transformer Engine's
  bool moe_grouped_gemm = false;                     // use the names of grouped experts
  std::optional<MegatronArgsForm> mg_args;           // nullopt: a Namespace
  bool use_distributed_optimizer = false;            // write that optimizer's state
  int64_t make_vocab_size_divisible_by = 0;          // x TP; 0: from the model
  // Folder with config.json and tokenizer files for a Hugging Face target; empty: the source's. For a DCP or DeepSpeed
  // source it describes the model; for a mg source written by MindSpeed-LLM's converter it supplies what args lack.
  std::string hf_cfg_dir;
  NameRules names;                            // --rename, --include, --exclude: for a source without a family
  bool as_named = false;                      // ignore the family: tensors keep the names in the files
  std::string name_map;                       // tensor names of a Hugging Face source or target (user_family.h)
  std::string passthrough;                    // names of a hf source's tensors to copy unchanged (passthrough.h)
  bool drop_passthrough = false;              // leave out passthrough tensors
  std::string passthrough_from;               // folder whose passthrough tensors are added to the source
  bool allow_custom_model = false;            // allow a Megatron target for a model that Megatron itself cannot compute
  bool compress = false;                      // for a native target
  std::optional<core::WritePath> write_path;  // nullopt: the fastest that works
  bool resume = false;                        // keep what an earlier attempt at the same conversion wrote
  bool drop_optimizer = false;
  OptimizerFlags optimizer;  // optimizer settings that replace the source's
  std::string lora;          // folder of a PEFT adapter to merge into the weights; empty: none
  bool q8_0 = false;         // store matrices of a gguf target in q8_0 (8-bit blocks)
  bool dry_run = false;
  bool prove = false;                     // read the result back and compare it with the source (ckpt/prove.h)
  std::vector<std::string> command;       // the flags as given, for the report
  ScriptClaims claims;                    // with model_type_hf, a hf, dcp, ucp or gguf target has that family
  std::vector<std::string> script_flags;  // those of script_flags() that were given
  ckpt::ExecuteOptions execute;
};

// Parse "local" or "te", and "namespace", "dict" or "omit". Throw kInvalidArgument naming `flag`.
MegatronNaming parse_norm_naming(const std::string& text, const std::string& flag);
MegatronArgsForm parse_args_form(const std::string& text, const std::string& flag);
// Parses "fp32", "bf16" or "fp16"; throws kInvalidArgument naming `flag` and the accepted values. also: one more
// accepted value, which the caller handles.
core::DType parse_weight_dtype(const std::string& text, const std::string& flag, const std::string& also = "");
// Parses "5GB" (decimal), "500MB", "2GiB" or "1000" into bytes; throws kInvalidArgument naming `flag`.
int64_t parse_size_bytes(const std::string& text, const std::string& flag);

}  // namespace ms::convert
