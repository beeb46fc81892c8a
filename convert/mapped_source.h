// Tensors under Hugging Face's names, whatever they lie in, as a ckpt::Source: a folder of safetensors or .bin files,
// or a checkpoint that FSDP wrote of the same model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/source.h"
#include "convert/huggingface_config.h"
#include "convert/tensor_file.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

struct NamedTensors {
  struct Place {
    int32_t file = 0;  // of `files`
    size_t index = 0;  // in the file
  };
  using Table = std::map<std::string, Place, std::less<>>;  // by name

  std::string where;  // begins messages
  // Tensors that are no part of the model and are kept under their own names (passthrough.h); empty: none.
  std::function<bool(std::string_view name)> passes_through;
  std::vector<std::unique_ptr<TensorFile>> files;
  // Weights, and optimizer state under the names of the weights that it is of. Every role has every tensor of the
  // model.
  std::map<core::TensorRole, Table> tables;
  std::vector<ckpt::Leftover> leftovers;
};

// info: what the source says besides its model and family, which come from config.
//
// Tensors that pass through become buffers under their own names.
// A stored lm_head of a tied model must equal the embedding and is left out; rotary buffers are ignored. Throws
// kCorruptData (a tensor is missing, or has another shape than config says), kUnsupported (a tensor that the family
// does not have, an element type).
std::unique_ptr<ckpt::Source> make_mapped_source(NamedTensors tensors, const HfConfig& config,
                                                 ckpt::CheckpointInfo info);

}  // namespace ms::convert
