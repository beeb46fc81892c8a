// Opens anything that contains named tensors as a source without a family; keys are the files' own names.
//
//   a folder of weights     model.safetensors, pytorch_model.bin, adapter_model.*, their indices, or any *.safetensors
//   a file                  .safetensors, or a torch.save file (.pt, .pth, .bin, .ckpt); the content decides
//   PyTorch DCP             .metadata and *.distcp
//   DeepSpeed               ZeRO 1, 2, 3 and universal checkpoints
//   FSDP rank files         model_world_size_N_rank_R.pt (torch/rank_files.h)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::convert {

// Returns what identifies named tensors at `path`: "adapter_model.safetensors", "a file of torch.save"; empty if there
// are none, or if they cannot be read without the rest of their format (Megatron's trees).
std::string named_sign(const std::string& path);

// info().model_extra has "model_type" and "hf_config" if the folder has a config.json. Appends to `decisions` what is
// not copied. drop_optimizer: skip optimizer state. Throws kNotFound if named_sign is empty, and what the readers
// throw.
std::unique_ptr<ckpt::Source> open_named(const std::string& path, bool drop_optimizer,
                                         std::vector<std::string>& decisions);

// Returns the folder of the config.json that belongs to the checkpoint at `path`: the checkpoint's own, or
// "huggingface" in it (verl); empty if there is none.
std::string config_folder_of(const std::string& path);

// Returns the folder whose config.json, tokenizer and other small files belong to the checkpoint at `path`: that of its
// config.json, else the checkpoint itself if it is a folder; empty for a file.
std::string small_files_of(const std::string& path);

}  // namespace ms::convert
