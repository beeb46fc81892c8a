// The checkpoint formats that convert reads or writes, and their names in flags and reports.
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
  kHuggingFaceBin,  // as a target: pytorch_model.bin; sources are kHuggingFace
  kFile,            // one .safetensors, .pt or .bin file
  kRankFiles,       // model_world_size_N_rank_R.pt of FSDP ranks
};

// Returns "ms", "hf", "mg", "dist", "dcp", "ds", "ucp", "meta", "gguf", "hf-bin", "file" or "fsdp": the value of
// --load-model-type.
std::string_view format_name(Format format);

// The inverse, for formats that can be read and for those that can be written. Throw kInvalidArgument, naming `flag`
// and the possible formats.
Format parse_source_format(const std::string& text, const std::string& flag);
Format parse_target_format(const std::string& text, const std::string& flag);

}  // namespace ms::convert
