// A GGUF file to be written, for llama.cpp: weights and tokenizer in one.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/sink.h"
#include "ckpt/source.h"
#include "convert/placed_result.h"

namespace ms::convert {

struct GgufTargetOptions {
  std::string folder;            // DIR/model.gguf is made; may not be there yet
  nlohmann::json config;         // config.json: whose names the weights have
  std::string tokenizer_folder;  // of tokenizer.json; empty: none
  bool q8_0 = false;             // matrices in blocks of 32 int8 with a scale
  WriteOptions writing;
};

struct GgufTarget {
  ckpt::ShardTable shards;
  std::unique_ptr<ckpt::Sink> sink;
};

// dtype: of a canonical parameter's matrices. Vectors and learned positions are fp32, as llama.cpp wants them. Appends
// to `decisions` what is not simply copied. Throws kInvalidArgument if there is such a file already, kUnsupported for a
// model that llama.cpp cannot compute, and what reading the tokenizer throws.
GgufTarget make_gguf_target(const ckpt::Source& source, const GgufTargetOptions& options,
                            const std::function<core::DType(const std::string& key)>& dtype,
                            std::vector<std::string>& decisions);

}  // namespace ms::convert
