// Writes a GGUF file for llama.cpp, with weights and tokenizer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/sink.h"
#include "ckpt/source.h"
#include "convert/placed_result.h"
#include "core/io/json.h"

namespace ms::convert {

struct GgufTargetOptions {
  std::string folder;            // receives DIR/model.gguf, which must not exist
  nlohmann::json config;         // config.json, which determines the names of the weights
  std::string tokenizer_folder;  // folder of tokenizer.json; empty: none
  bool q8_0 = false;             // store matrices in blocks of 32 int8 values with a scale
  WriteOptions writing;
};

struct GgufTarget {
  ckpt::ShardTable shards;
  std::unique_ptr<ckpt::Sink> sink;
};

// dtype: of a canonical parameter's matrices. Vectors and learned positions are fp32, as llama.cpp requires. Appends to
// `decisions` what is not simply copied. Throws kInvalidArgument if the file exists, kUnsupported for a model that
// llama.cpp cannot compute, and what reading the tokenizer throws.
GgufTarget make_gguf_target(const ckpt::Source& source, const GgufTargetOptions& options,
                            const std::function<core::DType(const std::string& key)>& dtype,
                            std::vector<std::string>& decisions);

}  // namespace ms::convert
