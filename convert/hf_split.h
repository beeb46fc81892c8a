// Splits the tensors of a Hugging Face folder into files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ms::convert {

struct HfFiles {  // file names of one kind
  const char *stem, *extension;
};
inline constexpr HfFiles kHfSafetensors{"model", ".safetensors"};

inline constexpr int64_t kHfShardBytes = 5'000'000'000;  // transformers' default

struct HfSplit {
  std::vector<std::string> files;  // "model-00001-of-00002.safetensors", or the single "model.safetensors"
  std::vector<size_t> file_of;     // index into files, per tensor
};

// Splits as huggingface_hub does (serialization/_base.py), so that the files are the same: greedily, in the order of
// the state_dict; a tensor above the limit gets its own file, which does not close the file being filled.
HfSplit split_by_size(std::span<const int64_t> tensor_bytes, int64_t max_shard_bytes, const HfFiles& kind);

// Returns the split in the index of `folder`, if the index lists exactly these tensors in plain files of this kind;
// otherwise nullopt. It can differ from a split by size, since transformers also considers which tensors share memory.
// Throws kCorruptData for an index that cannot be parsed.
std::optional<HfSplit> split_of_index(const std::string& folder, std::span<const std::string> tensors,
                                      const HfFiles& kind);

// Returns, for example, "model.safetensors.index.json".
std::string hf_index_name(const HfFiles& kind);

}  // namespace ms::convert
