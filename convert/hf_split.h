// How the tensors of a Hugging Face folder are split into files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ms::convert {

struct HfFiles {  // how files of a kind are called
  const char *stem, *extension;
};
inline constexpr HfFiles kHfSafetensors{"model", ".safetensors"};

inline constexpr int64_t kHfShardBytes = 5'000'000'000;  // transformers' default

struct HfSplit {
  std::vector<std::string> files;  // "model-00001-of-00002.safetensors", or the single "model.safetensors"
  std::vector<size_t> file_of;     // of each tensor: index into files
};

// As huggingface_hub splits (serialization/_base.py), so that the same files come out: greedily, in the order of the
// state_dict; a tensor above the limit goes into a file of its own, which does not close the one being filled.
HfSplit split_by_size(std::span<const int64_t> tensor_bytes, int64_t max_shard_bytes, const HfFiles& kind);

// The split that the index of `folder` says, if it lists exactly these tensors, in plain files of this kind; nothing
// else. transformers splits by what tensors share storage in memory, which sizes do not tell. Throws kCorruptData if
// there is an index that cannot be read.
std::optional<HfSplit> split_of_index(const std::string& folder, std::span<const std::string> tensors,
                                      const HfFiles& kind);

// "model.safetensors.index.json"
std::string hf_index_name(const HfFiles& kind);

}  // namespace ms::convert
