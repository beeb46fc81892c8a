// The tensors of a DCP checkpoint as one TensorFile: the shards of each put together.
#pragma once

#include <memory>

#include "convert/tensor_file.h"
#include "convert/torch/dcp_reader.h"

namespace ms::convert {

// Names are the checkpoint's keys. Scalars are left out. Keeps the reader. Throws kCorruptData if the shards of a
// tensor do not tile it, kUnsupported for a stack that is cut by the rows of its matrices, or for what has more axes
// and is cut along another than the first.
std::unique_ptr<TensorFile> open_dcp_tensors(std::shared_ptr<const DcpReader> reader);

}  // namespace ms::convert
