// Finds the weight files of a folder as transformers, peft and diffusers write them: one file, or several with an
// index.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convert/mapped_source.h"
#include "convert/torch/state_dict.h"

namespace ms::convert {

struct WeightFiles {
  bool torch = false;              // written by torch.save; false: safetensors
  std::string index;               // file name in the folder; empty: none
  std::vector<std::string> files;  // file names, if there is no index
  std::string rule() const { return index.empty() ? files.front() : index; }
};

// Returns model.safetensors or pytorch_model.bin, or the index of several: the first that exists.
std::optional<WeightFiles> find_model_files(const std::string& folder);
// Returns those, or any other files of named tensors: of an adapter (adapter_model.*), of diffusers, the only
// *.safetensors.index.json, or all *.safetensors. nullopt if there are none. Throws kInvalidArgument for several
// indices.
std::optional<WeightFiles> find_weight_files(const std::string& folder);

// Opens the files; every tensor has role kParam. Throws kCorruptData for an index that contradicts the files, for files
// (or links) that lead out of the folder, and for duplicate tensor names; and what the file readers throw.
NamedTensors open_weight_files(const std::string& folder, const WeightFiles& weights, OtherEntries others);

}  // namespace ms::convert
