// Presents tensors under Hugging Face's names as a ckpt::Source, whatever contains them: a folder of safetensors or
// .bin files, or a checkpoint that FSDP wrote of the same model.
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
    int32_t file = 0;  // index in `files`
    size_t index = 0;  // in the file
  };
  using Table = std::map<std::string, Place, std::less<>>;  // by name

  std::string where;  // prepended to messages
  // Selects tensors that are not part of the model and keep their own names (passthrough.h); empty: none.
  std::function<bool(std::string_view name)> passes_through;
  std::vector<std::unique_ptr<TensorFile>> files;
  // Weights, and optimizer state under the names of its weights. Every role has every tensor of the model.
  std::map<core::TensorRole, Table> tables;
  std::vector<ckpt::Leftover> leftovers;
};

// info: describes the source; its model and family are set from config.
//
// Passthrough tensors become buffers under their own names. A stored lm_head of a tied model must equal the embedding
// and is left out; rotary buffers are ignored. Throws kCorruptData (a tensor is missing, or differs in shape from
// config), kUnsupported (a tensor that the family does not have, an element type).
std::unique_ptr<ckpt::Source> make_mapped_source(NamedTensors tensors, const HfConfig& config,
                                                 ckpt::CheckpointInfo info);

}  // namespace ms::convert
