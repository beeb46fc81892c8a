// The weight files of a folder, as transformers, peft and diffusers lay them out: one file, or several and an index.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convert/mapped_source.h"
#include "convert/torch/state_dict.h"

namespace ms::convert {

struct WeightFiles {
  bool torch = false;              // written by torch.save, else safetensors
  std::string index;               // its name in the folder; empty: none
  std::vector<std::string> files;  // without an index: their names
  std::string rule() const { return index.empty() ? files.front() : index; }
};

// model.safetensors or pytorch_model.bin, or the index of several, the first that is there.
std::optional<WeightFiles> find_model_files(const std::string& folder);
// Those, or what else holds named tensors: files of an adapter (adapter_model.*), of diffusers, the only
// *.safetensors.index.json, or all *.safetensors. Nothing if there are none. Throws kInvalidArgument for several
// indices.
std::optional<WeightFiles> find_weight_files(const std::string& folder);

// Opens them; every tensor is of role kParam. Throws kCorruptData for an index that contradicts the files, for files
// (or links) that lead out of the folder, and for two tensors of one name; and what the readers of files throw.
NamedTensors open_weight_files(const std::string& folder, const WeightFiles& weights, OtherEntries others);

}  // namespace ms::convert
