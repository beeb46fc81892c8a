// A set of named tensors to be written under the names that its source has, in formats that keep names: a folder as
// transformers lays it out (safetensors or .bin), one file, or a DCP checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/sink.h"
#include "ckpt/source.h"
#include "convert/dcp_named.h"
#include "convert/placed_result.h"

namespace ms::convert {

enum class NamedForm { kHuggingFace, kHuggingFaceBin, kFile, kDcp };

struct NamedTargetOptions {
  // The folder to be made. Of kFile the file: *.safetensors, or *.pt, *.pth, *.bin or *.ckpt as torch.save writes.
  std::string save_dir;
  NamedForm form = NamedForm::kHuggingFace;
  int64_t max_shard_size_bytes = 5'000'000'000;  // of a file of a folder; a larger tensor gets a file of its own
  int data_parallel_size = 1;                    // kDcp: ranks that each tensor is cut for, a file for each
  std::optional<core::DType> dtype;              // of parameters in fp32, bf16 or fp16; others keep theirs
  bool with_optimizer = false;                   // kDcp
  std::string stem;                              // of the folder's files: "adapter_model"; empty: model, pytorch_model
  std::string copy_from;                     // folder whose config.json, tokenizer and the like go along; empty: none
  nlohmann::json config, generation_config;  // in place of those of copy_from; null: not
  WriteOptions writing;
  DcpEntries entries;  // kDcp, of a DCP source: its keys, and what is no tensor
};

struct NamedTarget {
  ckpt::ShardTable shards;  // what to copy from the source, for execute()
  std::unique_ptr<ckpt::Sink> sink;
};

// What is not simply copied is appended to `decisions`. Throws kInvalidArgument if there is something at save_dir that
// would be overwritten or the file's ending is none of those; kUnsupported for optimizer state in a form that has no
// place for it (unless with_optimizer is false, which leaves it out).
NamedTarget make_named_target(const ckpt::Source& source, const NamedTargetOptions& options,
                              std::vector<std::string>& decisions);

// Weights and buffers of the model, not state of an optimizer (which NamedSources call "optim.state.NAME.FIELD" where
// it has no role of its own).
bool is_optimizer_state(core::TensorRole role, std::string_view key);

// The stem of the weight files of a folder that is no model of transformers: "adapter_model" of an adapter of PEFT;
// else empty.
std::string weight_stem_of(const std::string& folder);

}  // namespace ms::convert
