// Presents the tensors of a ckpt::Source, each merged from its shards, as one TensorFile, so that a family can read a
// source whose tensors are cut (mapped_source.h).
#pragma once

#include <memory>

#include "ckpt/source.h"
#include "convert/tensor_file.h"

namespace ms::convert {

// Tensor i of the file is tensor i of source->shards(), whatever its role; find() searches weights only. Keeps the
// source, whose shards must tile their tensors. Reading is as thread-safe as the source and needs no additional memory.
std::unique_ptr<TensorFile> open_whole_tensors(std::shared_ptr<ckpt::Source> source, std::string path);

}  // namespace ms::convert
