// Writes a set of named tensors under the source's names, in formats that keep names: a folder as transformers lays it
// out (safetensors or .bin), one file, or a DCP checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/sink.h"
#include "ckpt/source.h"
#include "convert/dcp_named.h"
#include "convert/placed_result.h"
#include "core/io/json.h"

namespace ms::convert {

enum class NamedForm { kHuggingFace, kHuggingFaceBin, kFile, kDcp };

struct NamedTargetOptions {
  // The folder to create. For kFile, the file: *.safetensors, or *.pt, *.pth, *.bin or *.ckpt as torch.save writes.
  std::string save_dir;
  NamedForm form = NamedForm::kHuggingFace;
  int64_t max_shard_size_bytes = 5'000'000'000;  // per file of a folder; a larger tensor gets its own file
  int data_parallel_size = 1;                    // kDcp: number of ranks that each tensor is cut for; one file per rank
  std::optional<core::DType> dtype;              // for parameters in fp32, bf16 or fp16; others keep theirs
  bool with_optimizer = false;                   // kDcp
  std::string stem;                          // stem of the folder's files: "adapter_model"; empty: model, pytorch_model
  std::string copy_from;                     // folder whose config.json, tokenizer and the like are copied; empty: none
  nlohmann::json config, generation_config;  // replace those of copy_from; null: not replaced
  WriteOptions writing;
  DcpEntries entries;  // kDcp from a DCP source: its keys, and its objects that are not tensors
};

struct NamedTarget {
  ckpt::ShardTable shards;  // what execute() copies from the source
  std::unique_ptr<ckpt::Sink> sink;
};

// Appends to `decisions` what is not simply copied. Throws kInvalidArgument if something at save_dir would be
// overwritten or the file's suffix is not one of these; kUnsupported for optimizer state in a form that cannot hold it
// (unless with_optimizer is false, which leaves it out).
NamedTarget make_named_target(const ckpt::Source& source, const NamedTargetOptions& options,
                              std::vector<std::string>& decisions);

// Whether a tensor is optimizer state, not a weight or buffer of the model. (Named sources call it
// "optim.state.NAME.FIELD" if it has no role of its own.)
bool is_optimizer_state(core::TensorRole role, std::string_view key);

// Returns the stem of the weight files of a folder that is not a transformers model: "adapter_model" for a PEFT
// adapter; otherwise empty.
std::string weight_stem_of(const std::string& folder);

}  // namespace ms::convert
