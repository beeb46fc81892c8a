// The formats of checkpoints that convert reads or writes, by the names that flags and reports use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ms::convert {

enum class Format : uint8_t {
  kNative,          // ours, ckpt/FORMAT.md
  kHuggingFace,     // config.json with safetensors or pytorch_model.bin
  kMegatron,        // --ckpt-format torch: mp_rank_* folders
  kMegatronDist,    // --ckpt-format torch_dist
  kDcp,             // torch.distributed.checkpoint, as FSDP users save it
  kDeepSpeed,       // ZeRO 1, 2, 3
  kUniversal,       // DeepSpeed's universal checkpoints
  kMeta,            // consolidated.NN.pth and params.json
  kGguf,            // llama.cpp
  kHuggingFaceBin,  // pytorch_model.bin, as a result; read as kHuggingFace
  kFile,            // one .safetensors, .pt or .bin file
  kRankFiles,       // model_world_size_N_rank_R.pt of FSDP's ranks
};

// "ms", "hf", "mg", "dist", "dcp", "ds", "ucp", "meta", "gguf", "hf-bin", "file" or "fsdp": the value of
// --load-model-type.
std::string_view format_name(Format format);

// The inverse, of formats that are read and of those that are written. Throw kInvalidArgument, naming `flag` and the
// formats there are.
Format parse_source_format(const std::string& text, const std::string& flag);
Format parse_target_format(const std::string& text, const std::string& flag);

}  // namespace ms::convert
