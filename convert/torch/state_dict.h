// Reads a torch.save file that holds a state_dict (a dictionary from names to tensors): pytorch_model.bin, or any .pt.
//
// Training programs often save the state_dict inside a larger dictionary. If the outer dictionary has no tensors of its
// own and one of its keys "state_dict", "model_state_dict", "model" or "module" holds one, that one is read, and the
// log names it.
#pragma once

#include <memory>
#include <string>

#include "convert/tensor_file.h"

namespace ms::convert {

// How to treat entries that are not tensors. kLeftOut: they are counted in the log; nested dictionaries of tensors are
// flattened, with their names joined by dots.
enum class OtherEntries { kRefused, kLeftOut };

// Throws as TorchFile; kUnsupported if the file holds something other than a dictionary of tensors.
std::unique_ptr<TensorFile> open_state_dict(const std::string& path);
std::unique_ptr<TensorFile> open_state_dict(const std::string& path, OtherEntries others);

}  // namespace ms::convert
