// A Hugging Face folder (config.json and safetensors, one file or many) as a ckpt::Source, and as a ckpt::Sink.
//
// Both see a Hugging Face tensor as the boxes of canonical tensors that name_map.h says; each box is a run of whole
// rows, so a contiguous range of one file. Weights only: the format has no place for optimizer state.
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

// "config.json and model.safetensors"; or the latter alone where there is no config.json; empty if `folder` holds no
// weights under Hugging Face's file names.
std::string huggingface_sign(const std::string& folder);

// info().model_extra carries what the way back needs: "family", "hf_config", "hf_generation_config" (if there is one).
//
// A stored lm_head of a tied model must equal the embedding and is left out; rotary buffers are ignored. Throws
// kNotFound (no such folder or file), kCorruptData (a tensor is missing, has another shape than config.json says, or
// lies in another file than the index says), kUnsupported (a config key, a tensor the family does not have, an element
// type).
// Of a wrapper (wrapper.h) the source is the language model, and the other tensors that pass through. passthrough: a
// regular expression (ECMAScript) of further names that do, found anywhere in them; "": none.
// family: instead of the one that config.json names; it outlives the source.
std::unique_ptr<ckpt::Source> open_huggingface(const std::string& folder, const Family* family = nullptr,
                                               const std::string& passthrough = "");

struct HfSinkOptions {
  std::string folder;  // made if absent; may not hold a model yet
  // --max-shard-size; a larger tensor gets a file of its own. None: as copy_from is split (hf_split.h), else 5 GB.
  std::optional<int64_t> max_shard_size_bytes;
  std::string copy_from;             // folder of tokenizer files to copy, which came with the model; empty: none
  nlohmann::json config;             // config.json
  nlohmann::json generation_config;  // generation_config.json; null: none
  const Family* family = nullptr;    // that the targets are of; null: the one that config names
  WriteOptions writing;
};

// The targets to give execute(): every box of every tensor, in the order of the state_dict, and then `others`.
// dtype: of a canonical tensor. others: what passes through (passthrough.h).
std::vector<core::ShardedTensor> hf_targets(const Family& family, const core::TransformerConfig& model,
                                            const std::function<core::DType(const std::string& key)>& dtype,
                                            std::span<const core::ShardedTensor> others = {});

// Takes exactly the targets that hf_targets makes for info.model. Files are written through placed_result.h; in a
// folder that was there before, the one that makes it a model (the index, or the only file) appears last. commit()
// returns the folder. Throws kInvalidArgument if the folder holds a model already.
std::unique_ptr<ckpt::Sink> make_hf_sink(HfSinkOptions options);

}  // namespace ms::convert
