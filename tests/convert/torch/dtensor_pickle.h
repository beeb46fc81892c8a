// Writes DTensors as torch 2.13 pickles them, with any mesh and placements (tests/data/fsdp_ranks has genuine ones).
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "convert/torch/pickle_writer.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"

namespace ms::test {

struct PickledPlacement {
  std::string kind = "Shard";  // the class
  int64_t dim = 0;
  int64_t split_factor = 0;  // 0: none
};

struct PickledDTensor {
  std::vector<int64_t> shape;        // global
  std::vector<int64_t> local_shape;  // fp32
  size_t storage = 0;
  std::vector<int64_t> mesh_shape, mesh_stride;  // strides of each axis, in ranks
  std::vector<int64_t> ranks;
  std::vector<PickledPlacement> placements;
  std::vector<int64_t> meta_shape = {};  // empty: same as shape
};

inline constexpr const char* kTensorModule = "torch.distributed.tensor";

inline int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

inline void write_axis(convert::PickleWriter& p, int64_t shape, int64_t stride) {
  const auto fields = [&] {
    p.text("shape");
    p.integers({&shape, 1});
    p.text("stride");
    p.integers({&stride, 1});
  };
  p.instance("torch.distributed._mesh_layout", "_FlatLayout", [&] { p.dict(fields); });
}

inline void write_mesh(convert::PickleWriter& p, const PickledDTensor& tensor) {
  const auto axes = [&] {
    for (size_t axis = 0; axis < tensor.mesh_shape.size(); ++axis) {
      write_axis(p, tensor.mesh_shape[axis], tensor.mesh_stride[axis]);
    }
  };
  const auto layout = [&] {
    p.text("axes");
    p.list(axes);
  };
  const auto mesh = [&] {
    p.text("_layout");
    p.instance("torch.distributed._mesh_layout", "_MeshLayout", [&] { p.dict(layout); });
    p.text("_flatten_rank_map");
    p.integers(tensor.ranks);
  };
  p.instance("torch.distributed.device_mesh", "DeviceMesh", [&] { p.dict(mesh); });
}

inline void write_placement(convert::PickleWriter& p, const PickledPlacement& placement) {
  const auto fields = [&] {
    if (placement.kind != "Replicate") p.text("dim"), p.integer(placement.dim);
    if (placement.split_factor > 0) p.text("split_factor"), p.integer(placement.split_factor);
  };
  p.instance(core::cat(kTensorModule, ".placement_types"), placement.kind, [&] { p.dict(fields); });
}

inline void write_spec(convert::PickleWriter& p, const PickledDTensor& tensor) {
  const auto placements = [&] {
    for (const PickledPlacement& placement : tensor.placements) write_placement(p, placement);
  };
  const auto meta = [&] { p.integers(tensor.meta_shape.empty() ? tensor.shape : tensor.meta_shape); };
  const std::string module = core::cat(kTensorModule, "._dtensor_spec");
  const auto fields = [&] {
    p.text("mesh");
    write_mesh(p, tensor);
    p.text("placements");
    p.list(placements);
    p.text("tensor_meta");
    p.call(module, "TensorMeta", meta);
  };
  p.instance(module, "DTensorSpec", [&] { p.dict(fields); });
}

inline void write_dtensor(convert::PickleWriter& p, const PickledDTensor& tensor) {
  const auto made_of = [&] {
    p.symbol(kTensorModule, "DTensor");
    p.symbol("torch", "float32");
    p.integers(tensor.shape);
    p.integers(std::vector<int64_t>(tensor.shape.size(), 1));
    p.integer(0);
  };
  const convert::TorchView local = {.dtype = convert::SafetensorsDType::kF32,
                                    .storage = tensor.storage,
                                    .storage_elements = product(tensor.local_shape),
                                    .shape = core::Dims(tensor.local_shape.begin(), tensor.local_shape.end())};
  const auto slots = [&] {
    p.text("_local_tensor");
    convert::write_torch_tensor(p, local);
    p.text("_spec");
    write_spec(p, tensor);
  };
  const auto state = [&] {
    p.none();
    p.dict(slots);
  };
  const auto arguments = [&] {
    p.symbol("torch._utils", "_rebuild_wrapper_subclass");
    p.symbol(kTensorModule, "DTensor");
    p.tuple(made_of);
    p.tuple(state);
  };
  p.call("torch._tensor", "_rebuild_from_type_v2", arguments);
}

// A torch.save file of {"w": the tensor}, with elements first, first + 1, ..
inline std::string dtensor_file(const PickledDTensor& tensor, float first = 0) {
  const int64_t elements = product(tensor.local_shape);
  std::string storage(static_cast<size_t>(elements) * sizeof(float), '\0');
  for (int64_t i = 0; i < elements; ++i) {
    const float value = first + static_cast<float>(i);
    std::memcpy(storage.data() + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
  }
  const std::string pickle = convert::make_pickle([&](convert::PickleWriter& p) {
    p.dict([&] {
      p.text("w");
      write_dtensor(p, tensor);
    });
  });
  return convert::make_torch_archive(pickle, std::vector<std::string>{storage});
}

}  // namespace ms::test
