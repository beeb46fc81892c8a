// Presents any set of named tensors as a ckpt::Source without a family: keys are the files' own names, info().has_model
// is false.
//
// Tensors may have any element type of whole bytes and up to core::Dims's maximum of axes, and may be cut into boxes in
// any way. Code that needs the model (tensor-parallel cuts, names of other programs) refuses such a source:
// ckpt::require_model.
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

// A box of a global tensor, and the file tensor that contains it.
struct NamedShard {
  std::string key;
  core::TensorRole role = core::TensorRole::kParam;
  core::Dims global_shape, offset, extent;
  int32_t file = 0;       // index in NamedShards::files
  size_t index = 0;       // index of the tensor in the file
  core::Dims held_shape;  // shape of that tensor
  core::Dims held_at;     // offset of the box in that tensor
};

struct NamedShards {
  std::string where;  // prepended to messages
  std::vector<std::unique_ptr<TensorFile>> files;
  std::vector<NamedShard> shards;  // in the order of the source
  std::vector<ckpt::Leftover> leftovers;
};

// Adds every tensor of a file, whole and under its own name.
void add_whole_tensors(NamedShards& to, std::unique_ptr<TensorFile> file,
                       core::TensorRole role = core::TensorRole::kParam);
// Converts tensors selected by name, the input of a family's source.
NamedShards whole_shards(NamedTensors tensors);

// Throws kCorruptData (boxes of a tensor overlap, leave a gap or differ in element type; a name is not UTF-8),
// kUnsupported (elements of fractional bytes, too many axes); kNotFound if there are no tensors.
std::unique_ptr<ckpt::Source> make_named_source(NamedShards shards, ckpt::CheckpointInfo info);

}  // namespace ms::convert
