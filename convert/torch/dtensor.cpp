#include "convert/torch/dtensor.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "convert/detail/printable.h"
#include "convert/torch/torch_types.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Dims;
using core::Error;
using core::ErrorCode;
using detail::printable;

constexpr size_t kMaxMeshAxes = 8;
constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxSplit = 1024;  // tensor-parallel ranks
constexpr size_t kMaxBoxes = 4096;   // per tensor and rank

template <class... Parts>
Error corrupt(const std::string& where, const Parts&... parts) {
  return Error(ErrorCode::kCorruptData, cat(where, ": ", parts...));
}

// Indices of one axis that a rank holds, in the order of its local tensor.
struct Run {
  int64_t begin = 0, count = 0;
};
using Runs = std::vector<Run>;

int64_t count_of(const Runs& runs) {
  int64_t count = 0;
  for (const Run& run : runs) count += run.count;
  return count;
}

// Elements [begin, end) of the concatenated runs.
Runs slice(const Runs& runs, int64_t begin, int64_t end) {
  Runs out;
  int64_t at = 0;
  for (const Run& run : runs) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + run.count);
    if (from < to) {
      if (!out.empty() && out.back().begin + out.back().count == run.begin + from - at) {
        out.back().count += to - from;
      } else {
        out.push_back({run.begin + from - at, to - from});
      }
    }
    at += run.count;
  }
  return out;
}

// Part `index` of torch.chunk into `parts`: all parts have the same length, but the last ones may be shorter.
Runs chunk(const Runs& runs, int64_t parts, int64_t index) {
  const int64_t count = count_of(runs), each = (count + parts - 1) / parts;
  return slice(runs, std::min(count, each * index), std::min(count, each * (index + 1)));
}

// _StridedShard._split_tensor: cuts into `factor` pieces and takes part `index` of each.
Runs strided_chunk(const Runs& runs, int64_t factor, int64_t parts, int64_t index) {
  Runs out;
  const int64_t pieces = std::min(factor, std::max<int64_t>(1, count_of(runs)));
  for (int64_t piece = 0; piece < pieces; ++piece) {
    for (const Run& run : chunk(chunk(runs, factor, piece), parts, index)) {
      if (!out.empty() && out.back().begin + out.back().count == run.begin) {
        out.back().count += run.count;
      } else {
        out.push_back(run);
      }
    }
  }
  return out;
}

// Applies all shards of one tensor axis and returns what is left to a rank. If a strided shard's factor equals the
// product of the mesh axes to its right that cut the same tensor axis, those axes have cut first (FSDP over tensor
// parallelism).
Runs runs_of_axis(int64_t length, int64_t axis, const DTensor& tensor, const std::vector<int64_t>& place) {
  std::vector<size_t> order;  // mesh axes, in the order in which they cut
  bool right_to_left = false;
  int64_t cut_to_right = 1;
  for (size_t m = tensor.placements.size(); m-- > 0;) {
    const DTensorPlacement& placement = tensor.placements[m];
    if (placement.kind == DTensorPlacement::Kind::kReplicate || placement.dim != axis) continue;
    if (placement.kind == DTensorPlacement::Kind::kStridedShard && placement.split_factor > 1) {
      right_to_left = placement.split_factor == cut_to_right;
      if (!right_to_left) break;
    }
    order.push_back(m);
    cut_to_right *= tensor.mesh->shape[m];
  }
  Runs runs = {{0, length}};
  if (right_to_left) {
    for (const size_t m : order) runs = chunk(runs, tensor.mesh->shape[m], place[m]);
    return runs;
  }
  for (size_t m = 0; m < tensor.placements.size(); ++m) {
    const DTensorPlacement& placement = tensor.placements[m];
    if (placement.kind == DTensorPlacement::Kind::kReplicate || placement.dim != axis) continue;
    runs = placement.kind == DTensorPlacement::Kind::kShard
               ? chunk(runs, tensor.mesh->shape[m], place[m])
               : strided_chunk(runs, placement.split_factor, tensor.mesh->shape[m], place[m]);
    if (runs.size() > kMaxBoxes) break;  // boxes_on_rank refuses it
  }
  return runs;
}

}  // namespace

std::optional<std::vector<int64_t>> DTensorMesh::place_of(int64_t rank) const {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) return std::nullopt;
  int64_t index = found - ranks.begin();
  std::vector<int64_t> place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; index /= shape[axis]) place[axis] = index % shape[axis];
  return place;
}

std::string DTensorMesh::text() const {
  std::string out, of;
  for (const int64_t length : shape) out += cat(out.empty() ? "" : " x ", length);
  for (const std::string& name : names) of += cat(of.empty() ? "" : ", ", name);
  return of.empty() ? out : cat(out, " (", of, ")");
}

// Reads a tuple or list of integers, a single integer, or a tensor of integers.
std::vector<int64_t> DTensorReader::integers(PickleValue value) const {
  const auto too_many = [&](uint64_t count) {
    return corrupt(file_.where(), "a device mesh of ", count, " numbers; at most ", kMaxRanks);
  };
  if (value.is(PickleKind::kInt)) return {value.integer()};
  if (const auto tensor = file_.tensor(value)) {
    const uint64_t count = tensor->elements(), item = bits_of(tensor->dtype) / 8;
    if (count > static_cast<uint64_t>(kMaxRanks)) throw too_many(count);
    if (tensor->dtype != SafetensorsDType::kI32 && tensor->dtype != SafetensorsDType::kI64) {
      throw corrupt(file_.where(), "a device mesh of ", safetensors_dtype_name(tensor->dtype), " instead of integers");
    }
    std::vector<std::byte> bytes(count * item);
    file_.read(*tensor, 0, bytes);
    std::vector<int64_t> numbers(count);
    for (size_t i = 0; i < count; ++i) {
      if (item == sizeof(int64_t)) {
        std::memcpy(&numbers[i], bytes.data() + i * item, item);
      } else {
        int32_t number = 0;
        std::memcpy(&number, bytes.data() + i * item, item);
        numbers[i] = number;
      }
    }
    return numbers;
  }
  const std::vector<PickleValue> items = value.items();
  if (items.size() > static_cast<size_t>(kMaxRanks)) throw too_many(items.size());
  std::vector<int64_t> numbers;
  for (const PickleValue item : items) numbers.push_back(item.integer());
  return numbers;
}

std::shared_ptr<const DTensorMesh> DTensorReader::mesh(PickleValue value) {
  const auto known = meshes_.find(value.id());
  if (known != meshes_.end()) return known->second;
  const std::string& where = file_.where();
  if (!is_instance_of(value, "DeviceMesh")) throw corrupt(where, "a DTensor whose mesh is not a DeviceMesh");
  const auto fields = fields_of(value);
  const auto field = [&](std::string_view name) -> std::optional<PickleValue> {
    const auto found = fields.find(name);
    const bool there = found != fields.end() && !found->second.is(PickleKind::kNone);
    return there ? std::optional(found->second) : std::nullopt;
  };
  auto mesh = std::make_shared<DTensorMesh>();
  // For each axis: sizes and strides into the list of ranks; several pairs for a flattened axis.
  std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> axes;
  std::vector<int64_t> ranks;
  if (const auto tensor = field("mesh")) {
    const auto view = file_.tensor(*tensor);
    if (!view) throw corrupt(where, "a DeviceMesh whose mesh is not a tensor");
    ranks = integers(*tensor);
    int64_t step = 1;
    for (size_t axis = view->shape.size(); axis-- > 0; step *= static_cast<int64_t>(view->shape[axis])) {
      axes.insert(axes.begin(), {{static_cast<int64_t>(view->shape[axis])}, {step}});
    }
  } else if (const auto layout = field("_layout")) {
    auto list = field("_flatten_rank_map");
    if (!list) list = field("_rank_map");
    if (!list) throw Error(ErrorCode::kUnsupported, cat(where, ": a DeviceMesh that does not list its ranks"));
    ranks = integers(*list);
    const auto parts = fields_of(*layout);
    const auto add = [&](const std::map<std::string_view, PickleValue>& of) {
      const auto shape = of.find("shape"), stride = of.find("stride");
      if (shape == of.end() || stride == of.end())
        throw corrupt(where, "a DeviceMesh's layout without shape or stride");
      return std::pair(shape->second, stride->second);
    };
    if (const auto flat = parts.find("axes"); flat != parts.end()) {
      for (const PickleValue axis : flat->second.items()) {
        const auto [shape, stride] = add(fields_of(axis));
        axes.emplace_back(integers(shape), integers(stride));
      }
    } else {  // shape and stride of all axes, each a number or a tuple
      const auto [shape, stride] = add(parts);
      if (shape.is(PickleKind::kInt)) {
        axes.emplace_back(integers(shape), integers(stride));
      } else {
        const auto shapes = shape.items(), strides = stride.items();
        if (shapes.size() != strides.size())
          throw corrupt(where, "a DeviceMesh's layout with different numbers of shapes and strides");
        for (size_t i = 0; i < shapes.size(); ++i) axes.emplace_back(integers(shapes[i]), integers(strides[i]));
      }
    }
  } else {
    throw Error(ErrorCode::kUnsupported, cat(where, ": a DeviceMesh without mesh and without _layout"));
  }
  if (axes.empty() || axes.size() > kMaxMeshAxes) {
    throw corrupt(where, "a DeviceMesh of ", axes.size(), " axes; 1 to ", kMaxMeshAxes, " are supported");
  }
  std::vector<int64_t> offsets = {0};  // offsets into the rank list of the mesh's places, row-major
  for (const auto& [shape, stride] : axes) {
    if (shape.size() != stride.size() || shape.size() > kMaxMeshAxes)
      throw corrupt(where, "a DeviceMesh with an invalid layout");
    int64_t length = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] < 1 || shape[i] > kMaxRanks || stride[i] < 0 || stride[i] > kMaxRanks ||
          static_cast<int64_t>(offsets.size()) > kMaxRanks / shape[i]) {
        throw corrupt(where, "a DeviceMesh with an invalid axis of ", shape[i], " ranks with stride ", stride[i]);
      }
      std::vector<int64_t> finer;
      finer.reserve(offsets.size() * static_cast<size_t>(shape[i]));
      for (const int64_t offset : offsets) {
        for (int64_t k = 0; k < shape[i]; ++k) finer.push_back(offset + k * stride[i]);
      }
      offsets = std::move(finer);
      length *= shape[i];
    }
    mesh->shape.push_back(length);
  }
  std::set<int64_t> seen;
  for (const int64_t offset : offsets) {
    if (offset >= static_cast<int64_t>(ranks.size())) {
      throw corrupt(where, "a DeviceMesh of shape ", mesh->text(), " over ", ranks.size(), " ranks");
    }
    const int64_t rank = ranks[static_cast<size_t>(offset)];
    if (rank < 0 || !seen.insert(rank).second)
      throw corrupt(where, "a DeviceMesh with rank ", rank, " twice or below 0");
    mesh->ranks.push_back(rank);
  }
  auto names = field("mesh_dim_names");
  if (!names) names = field("_mesh_dim_names");
  if (names) {
    for (const PickleValue name : names->items()) {
      if (name.is(PickleKind::kString)) mesh->names.emplace_back(name.text().substr(0, 64));
    }
  }
  meshes_.emplace(value.id(), mesh);
  return mesh;
}

std::optional<DTensor> DTensorReader::read(PickleValue value) {
  if (!value.is(PickleKind::kCall)) return std::nullopt;
  PickleValue callee = value.callee();
  std::vector<PickleValue> arguments = value.arguments();
  if (callee.is_symbol("torch._utils", "_rebuild_parameter") && !arguments.empty() &&
      arguments[0].is(PickleKind::kCall)) {
    callee = arguments[0].callee();
    arguments = PickleValue(arguments[0]).arguments();
  }
  // (function, type, its arguments, state)
  if (!callee.is_symbol("torch._tensor", "_rebuild_from_type_v2") || arguments.size() < 4 ||
      !arguments[0].is_symbol("torch._utils", "_rebuild_wrapper_subclass") || !arguments[1].is(PickleKind::kSymbol) ||
      arguments[1].text() != "DTensor") {
    return std::nullopt;
  }
  const std::string& where = file_.where();
  std::optional<PickleValue> local, spec;
  const std::vector<PickleValue> states =
      arguments[3].is(PickleKind::kTuple) ? arguments[3].items() : std::vector<PickleValue>{arguments[3]};
  for (const PickleValue state : states) {
    if (const auto found = state.find("_local_tensor")) local = found;
    if (const auto found = state.find("_spec")) spec = found;
  }
  if (!local || !spec) throw corrupt(where, "a DTensor without its local tensor or its spec");
  const auto view = file_.tensor(*local);
  if (!view) throw corrupt(where, "a DTensor whose local tensor is not a tensor");
  const auto fields = fields_of(*spec);
  const auto of_mesh = fields.find("mesh"), placements = fields.find("placements"), meta = fields.find("tensor_meta");
  if (of_mesh == fields.end() || placements == fields.end())
    throw corrupt(where, "a DTensor without mesh or placements");
  // (class, dtype, size, ..)
  const std::vector<PickleValue> made_of = arguments[2].items();
  if (made_of.size() < 3) throw corrupt(where, "a DTensor with too few arguments");
  DTensor tensor{*view, parse_torch_size(made_of[2], where), mesh(of_mesh->second), {}};
  if (meta != fields.end() && is_instance_of(meta->second, "TensorMeta") && !meta->second.arguments().empty() &&
      parse_torch_size(meta->second.arguments()[0], where) != tensor.shape) {
    throw corrupt(where, "a DTensor of shape ", tensor.shape, " whose tensor_meta has another shape");
  }
  for (const PickleValue item : placements->second.items()) {
    DTensorPlacement placement;
    const auto of = item.is(PickleKind::kCall) ? fields_of(item) : std::map<std::string_view, PickleValue>();
    const auto number = [&](std::string_view name, size_t argument) {
      const auto found = of.find(name);
      if (found != of.end()) return found->second.integer();
      const auto given = item.arguments();
      if (given.size() <= argument) throw corrupt(where, "a placement without ", name);
      return given[argument].integer();
    };
    if (is_instance_of(item, "Shard")) {
      placement.kind = DTensorPlacement::Kind::kShard;
      placement.dim = number("dim", 0);
    } else if (is_instance_of(item, "_StridedShard")) {
      placement.kind = DTensorPlacement::Kind::kStridedShard;
      placement.dim = number("dim", 0);
      placement.split_factor = number("split_factor", 1);
    } else if (!is_instance_of(item, "Replicate")) {
      throw Error(ErrorCode::kUnsupported, cat(where, ": a DTensor with the placement ",
                                               item.is(PickleKind::kCall) && item.callee().is(PickleKind::kSymbol)
                                                   ? printable(item.callee().text())
                                                   : std::string("of an unknown kind"),
                                               "; Shard and Replicate are supported"));
    }
    const auto axes = static_cast<int64_t>(tensor.shape.size());
    if (placement.dim < 0) placement.dim += axes;
    const bool cuts = placement.kind != DTensorPlacement::Kind::kReplicate;
    if (cuts && (placement.dim < 0 || placement.dim >= axes)) {
      throw corrupt(where, "a DTensor of ", axes, " axes that is cut along an axis it does not have");
    }
    if (placement.split_factor < 1 || placement.split_factor > kMaxSplit) {
      throw corrupt(where, "a strided placement with a split factor of ", placement.split_factor);
    }
    tensor.placements.push_back(placement);
  }
  if (tensor.placements.size() != tensor.mesh->shape.size()) {
    throw corrupt(where, "a DTensor with ", tensor.placements.size(), " placements on a mesh of ",
                  tensor.mesh->shape.size(), " axes");
  }
  return tensor;
}

std::vector<DTensorBox> boxes_on_rank(const DTensor& tensor, int64_t rank, const std::string& where) {
  const auto place = tensor.mesh->place_of(rank);
  if (!place)
    throw corrupt(where, "rank ", rank, " holds a part of a DTensor whose mesh, ", tensor.mesh->text(),
                  ", does not contain it");
  if (tensor.shape.size() > Dims::kMaxAxes) {
    throw Error(ErrorCode::kUnsupported, cat(where, ": a DTensor of ", tensor.shape.size(), " axes; at most ",
                                             Dims::kMaxAxes, " are supported"));
  }
  std::vector<Runs> runs;
  std::vector<uint64_t> local;
  size_t boxes = 1;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (tensor.shape[axis] > static_cast<uint64_t>(INT64_MAX) / 2)
      throw corrupt(where, "a DTensor with an axis of ", tensor.shape[axis]);
    runs.push_back(runs_of_axis(static_cast<int64_t>(tensor.shape[axis]), static_cast<int64_t>(axis), tensor, *place));
    local.push_back(static_cast<uint64_t>(count_of(runs.back())));
    if (boxes > 0 && runs.back().size() > kMaxBoxes / boxes) {
      throw Error(ErrorCode::kUnsupported,
                  cat(where, ": a DTensor with more than ", kMaxBoxes, " separate parts on a rank"));
    }
    boxes *= runs.back().size();
  }
  if (local != tensor.local.shape) {
    throw corrupt(where, "a DTensor of shape ", tensor.shape, " has a part of shape ", tensor.local.shape, " on rank ",
                  rank, ", but mesh and placements give it ", local);
  }
  std::vector<DTensorBox> out;
  if (boxes == 0) return out;
  out.reserve(boxes);
  std::vector<size_t> index(runs.size(), 0);
  for (size_t b = 0; b < boxes; ++b) {
    DTensorBox box;
    size_t rest = b;
    for (size_t axis = runs.size(); axis-- > 0; rest /= runs[axis].size()) index[axis] = rest % runs[axis].size();
    for (size_t axis = 0; axis < runs.size(); ++axis) {
      int64_t before = 0;
      for (size_t r = 0; r < index[axis]; ++r) before += runs[axis][r].count;
      box.offset.push_back(runs[axis][index[axis]].begin);
      box.extent.push_back(runs[axis][index[axis]].count);
      box.held_at.push_back(before);
    }
    out.push_back(std::move(box));
  }
  return out;
}

}  // namespace ms::convert
