// Presents the tensors of a DCP checkpoint as one TensorFile, with the shards of each tensor merged.
#pragma once

#include <memory>

#include "convert/tensor_file.h"
#include "convert/torch/dcp_reader.h"

namespace ms::convert {

// Names are the checkpoint's keys. Scalars are left out. Keeps the reader alive. Throws kCorruptData if the shards of a
// tensor do not tile it; kUnsupported if a 3-d tensor (a stack of matrices) is cut by matrix rows, or if a tensor of
// more than three axes is cut along any axis but the first.
std::unique_ptr<TensorFile> open_dcp_tensors(std::shared_ptr<const DcpReader> reader);

}  // namespace ms::convert
