// Reads DTensors as torch.save pickles them on one rank: the rank's local tensor, with the mesh and placements that
// determine which part of the global tensor it is.
//
// Nothing is executed (pickle.h).
// Sources: PyTorch's torch/distributed/tensor/_api.py (__tensor_flatten__), torch/_utils.py
// (_rebuild_wrapper_subclass), torch/distributed/device_mesh.py (DeviceMesh: `mesh` or, since 2.9, a layout over a map
// of ranks), torch/distributed/tensor/placement_types.py (Shard: torch.chunk; _StridedShard).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convert/torch/torch_file.h"
#include "core/dims.h"

namespace ms::convert {

struct DTensorMesh {
  std::vector<int64_t> shape;
  std::vector<int64_t> ranks;  // row-major over shape, distinct
  std::vector<std::string> names;

  // Returns the coordinates of a rank in the mesh; nullopt if the mesh does not contain it.
  std::optional<std::vector<int64_t>> place_of(int64_t rank) const;
  std::string text() const;  // "2 x 2 (dp, tp)"
};

struct DTensorPlacement {
  enum class Kind : uint8_t { kReplicate, kShard, kStridedShard };
  Kind kind = Kind::kReplicate;
  int64_t dim = 0;           // axis of the tensor
  int64_t split_factor = 1;  // kStridedShard: number of pieces that are each cut (the virtual cut to its right)
};

struct DTensor {
  TorchTensor local;
  std::vector<uint64_t> shape;  // global
  std::shared_ptr<const DTensorMesh> mesh;
  std::vector<DTensorPlacement> placements;  // one per mesh axis
};

// A box of the global tensor, and its offset in the local tensor.
struct DTensorBox {
  core::Dims offset, extent;
  core::Dims held_at;
};

class DTensorReader {
 public:
  explicit DTensorReader(const TorchFile& file) : file_(file) {}
  // Returns nullopt if the value is not a DTensor. Throws kCorruptData for a DTensor that contradicts itself,
  // kUnsupported for Partial placements (pending sums) and for a mesh that does not list its ranks.
  std::optional<DTensor> read(PickleValue value);

 private:
  std::shared_ptr<const DTensorMesh> mesh(PickleValue value);
  std::vector<int64_t> integers(PickleValue value) const;
  const TorchFile& file_;
  std::map<uint32_t, std::shared_ptr<const DTensorMesh>> meshes_;  // by id of the pickled object
};

// Returns the boxes that `rank` holds, in the order of the local tensor. Throws kCorruptData, with `where` first in the
// message, if the rank is not in the mesh or the local tensor does not have the shape that mesh and placements imply.
std::vector<DTensorBox> boxes_on_rank(const DTensor& tensor, int64_t rank, const std::string& where);

}  // namespace ms::convert
