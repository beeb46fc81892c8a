// Writes named tensors as safetensors or torch.save files: the folder of a model with its index, or a single file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/sink.h"
#include "convert/placed_result.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

struct NamedOutput {
  std::string key;
  core::TensorRole role = core::TensorRole::kParam;
  core::DType dtype = core::DType::kFp32;
  core::Dims shape;
};

struct NamedSinkOptions {
  std::filesystem::path folder;  // created if absent
  bool torch = false;            // torch.save's format; false: safetensors
  std::string single;            // file name in the folder of a single-file result; empty: the folder of a model
  // For a model's folder, as the next member: "model" makes model.safetensors, or several files and
  // model.safetensors.index.json.
  std::string stem = "model";
  int64_t max_shard_size_bytes = 5'000'000'000;
  std::vector<std::pair<std::string, std::string>> texts;  // small files, by name
  std::vector<NamedOutput> outputs;                        // of all files, in order
  WriteOptions writing;
};

// The targets must be the whole of each output that has elements, in this order. commit() returns the folder, or the
// single file. Throws kInvalidArgument if the folder already contains a model of this kind; begin() as
// PlacedResult::begin.
std::unique_ptr<ckpt::Sink> make_named_sink(NamedSinkOptions options);

}  // namespace ms::convert
