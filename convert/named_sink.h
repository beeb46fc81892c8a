// Files of named tensors being written, safetensors or what torch.save writes: the folder of a model with its index, or
// one file.
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
  std::filesystem::path folder;  // made if absent
  bool torch = false;            // torch.save's, else safetensors
  std::string single;            // the only file, in the folder; empty: a folder of a model
  // Of the folder of a model, as the next: "model" makes model.safetensors, or several and
  // model.safetensors.index.json.
  std::string stem = "model";
  int64_t max_shard_size_bytes = 5'000'000'000;
  std::vector<std::pair<std::string, std::string>> texts;  // small files, by name
  std::vector<NamedOutput> outputs;                        // of all files, in their order
  WriteOptions writing;
};

// Takes as targets the whole of each output that has elements, in this order. commit() returns the folder, or the
// single file. Throws kInvalidArgument if the folder holds a model of this kind already; begin() as
// PlacedResult::begin.
std::unique_ptr<ckpt::Sink> make_named_sink(NamedSinkOptions options);

}  // namespace ms::convert
