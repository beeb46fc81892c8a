// Opens whatever holds named tensors as a source without a family: keys are the files' own names.
//
//   a folder of weights     model.safetensors, pytorch_model.bin, adapter_model.*, their indices, or any *.safetensors
//   a file                  .safetensors, or what torch.save made (.pt, .pth, .bin, .ckpt), told by content
//   PyTorch DCP             .metadata and *.distcp
//   DeepSpeed               ZeRO 1, 2, 3 and universal checkpoints
//   files of FSDP's ranks   model_world_size_N_rank_R.pt (torch/rank_files.h)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::convert {

// What at `path` says so: "adapter_model.safetensors", "a file of torch.save"; empty if there are no named tensors, or
// they are not readable without the rest of their format (Megatron's trees).
std::string named_sign(const std::string& path);

// info().model_extra has "model_type" and "hf_config" where a config.json lies beside. What is not taken over is
// appended to `decisions`. drop_optimizer: its state is not read. Throws kNotFound if named_sign is empty, and what the
// readers throw.
std::unique_ptr<ckpt::Source> open_named(const std::string& path, bool drop_optimizer,
                                         std::vector<std::string>& decisions);

// The folder of the config.json that belongs to the checkpoint at `path`: itself, or "huggingface" in it (verl); empty
// if there is none.
std::string config_folder_of(const std::string& path);

// The folder whose config.json, tokenizer and other small files belong to the checkpoint at `path`: that of its
// config.json, else the checkpoint's own if it is a folder; empty for a file.
std::string small_files_of(const std::string& path);

}  // namespace ms::convert
