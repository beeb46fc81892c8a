// Reads and writes a Hugging Face folder (config.json and safetensors, one file or many): a ckpt::Source and a
// ckpt::Sink.
//
// Both treat a Hugging Face tensor as boxes of canonical tensors (name_map.h); each box is a run of whole rows, so it
// is contiguous in the file. Weights only: the format has no place for optimizer state.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/sink.h"
#include "ckpt/source.h"
#include "convert/huggingface_config.h"
#include "convert/placed_result.h"

namespace ms::convert {

// Returns "config.json and model.safetensors", or only the latter without a config.json; empty if `folder` contains no
// weights under Hugging Face's file names.
std::string huggingface_sign(const std::string& folder);

// info().model_extra contains what a conversion back needs: "family", "hf_config", "hf_generation_config" (if it
// exists).
//
// A stored lm_head of a tied model must equal the embedding and is left out; rotary buffers are ignored. Throws
// kNotFound (folder or file does not exist), kCorruptData (a tensor is missing, differs in shape from config.json, or
// is in another file than the index says), kUnsupported (a config key, a tensor that the family does not have, an
// element type). For a wrapper (wrapper.h) the source contains the language model, and the other tensors as
// passthrough. passthrough: a regular expression (ECMAScript) for further passthrough names, which may match anywhere
// in a name; "": none. family: replaces the one that config.json names; it must outlive the source.
std::unique_ptr<ckpt::Source> open_huggingface(const std::string& folder, const Family* family = nullptr,
                                               const std::string& passthrough = "");

struct HfSinkOptions {
  std::string folder;  // created if absent; must not contain a model
  // --max-shard-size; a larger tensor gets its own file. nullopt: split like copy_from (hf_split.h), else 5 GB.
  std::optional<int64_t> max_shard_size_bytes;
  std::string copy_from;             // folder of tokenizer files to copy, which came with the model; empty: none
  nlohmann::json config;             // config.json
  nlohmann::json generation_config;  // generation_config.json; null: none
  const Family* family = nullptr;    // family of the targets; null: the one that config names
  WriteOptions writing;
};

// Returns the targets for execute(): every box of every tensor, in the order of the state_dict, then `others`. dtype:
// of a canonical tensor. others: passthrough tensors (passthrough.h).
std::vector<core::ShardedTensor> hf_targets(const Family& family, const core::TransformerConfig& model,
                                            const std::function<core::DType(const std::string& key)>& dtype,
                                            std::span<const core::ShardedTensor> others = {});

// The targets must be those of hf_targets for info.model. Files are written through placed_result.h; in a folder that
// existed before, the file that makes it a model (the index, or the only file) appears last. commit() returns the
// folder. Throws kInvalidArgument if the folder already contains a model.
std::unique_ptr<ckpt::Sink> make_hf_sink(HfSinkOptions options);

}  // namespace ms::convert
