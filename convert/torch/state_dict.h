// A file of torch.save that holds a state_dict, names to tensors and nothing else: pytorch_model.bin.
#pragma once

#include <memory>
#include <string>

#include "convert/tensor_file.h"

namespace ms::convert {

// Throws as TorchFile; kUnsupported if it holds something else than a dictionary of tensors.
std::unique_ptr<TensorFile> open_state_dict(const std::string& path);

}  // namespace ms::convert
