// A file of torch.save that holds a state_dict, names to tensors: pytorch_model.bin, or any .pt.
//
// A dictionary without tensors of its own that has one under "state_dict", "model_state_dict", "model" or "module", as
// training programs save it beside their own state, stands for that one; the log says so.
#pragma once

#include <memory>
#include <string>

#include "convert/tensor_file.h"

namespace ms::convert {

// What to do with entries that are no tensors. kLeftOut: they are counted in the log; dictionaries of tensors within
// are looked into, their names joined by dots.
enum class OtherEntries { kRefused, kLeftOut };

// Throws as TorchFile; kUnsupported if it holds something else than a dictionary of tensors.
std::unique_ptr<TensorFile> open_state_dict(const std::string& path);
std::unique_ptr<TensorFile> open_state_dict(const std::string& path, OtherEntries others);

}  // namespace ms::convert
