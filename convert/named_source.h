// Any set of named tensors as a ckpt::Source, without a family: keys are the files' own names, info().has_model is
// false.
//
// Tensors of every element type of whole bytes, of up to core::Dims::kMostAxes axes, cut into boxes in any way. What
// needs to know the model (tensor-parallel cuts, names of other programs) refuses such a source: ckpt::require_model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "convert/mapped_source.h"
#include "convert/tensor_file.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

// A box of a global tensor, and the tensor of a file that it lies in.
struct NamedShard {
  std::string key;
  core::TensorRole role = core::TensorRole::kParam;
  core::Dims global_shape, offset, extent;
  int32_t file = 0;       // of NamedShards::files
  size_t index = 0;       // of the tensor in the file
  core::Dims held_shape;  // of that tensor
  core::Dims held_at;     // where the box begins in it
};

struct NamedShards {
  std::string where;  // begins messages
  std::vector<std::unique_ptr<TensorFile>> files;
  std::vector<NamedShard> shards;  // in the order of the source
  std::vector<ckpt::Leftover> leftovers;
};

// Every tensor of a file whole, under its own name.
void add_whole_tensors(NamedShards& to, std::unique_ptr<TensorFile> file,
                       core::TensorRole role = core::TensorRole::kParam);
// Tensors picked by name, as a family's source takes them.
NamedShards whole_shards(NamedTensors tensors);

// Throws kCorruptData (two boxes of one tensor overlap, a part of it is missing, its parts have several element types,
// a name that is not UTF-8), kUnsupported (elements that are no whole bytes, too many axes); kNotFound if there are no
// tensors.
std::unique_ptr<ckpt::Source> make_named_source(NamedShards shards, ckpt::CheckpointInfo info);

}  // namespace ms::convert
