#include "ckpt/shard_list.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/layout/box.h"
#include "core/layout/rank_grid.h"
#include "core/layout/sharding.h"
#include "core/layout/tensor_cut.h"

namespace ms::ckpt {

using core::cat;
using core::Error;
using core::ErrorCode;

namespace {

bool is_spread(const layout::ModelLayout& layout, core::TensorRole role) {
  if (role == core::TensorRole::kBuffer) return false;
  return layout.zero_stage >= (role == core::TensorRole::kParam ? 3 : 1);
}

// Where a rank is in the grid of a layout.
struct RankPlace {
  RankPlace(const layout::RankGrid& of, int rank)
      : grid(of), at(of.coordinates(rank)), experts(of.expert_coordinates(rank)) {}
  layout::RankGrid grid;
  layout::RankGrid::Coordinates at;
  layout::RankGrid::ExpertCoordinates experts;
};

// The shards of one parameter and role on a rank whose stage holds it: emit(offset, extent, replica). With `primary`,
// only those with replica_id 0.
template <class Emit>
void for_each_shard(const layout::ParameterSpec& spec, const core::TransformerConfig& config,
                    const layout::ModelLayout& layout, const RankPlace& place, core::TensorRole role, bool primary,
                    const Emit& emit) {
  int tp_size = place.grid.tp, tp_rank = place.at.tp;
  int dp_size = place.grid.replicas(), dp_rank = place.grid.replica(place.at);
  if (spec.expert >= 0) {
    const int64_t experts_each = spec.num_experts / place.grid.ep;
    if (spec.expert / experts_each != place.experts.ep) return;
    tp_size = place.grid.etp;
    tp_rank = place.experts.etp;
    dp_size = place.grid.expert_dp();
    dp_rank = place.experts.expert_dp;
  }
  // Replicas are numbered over tp if tensor parallelism does not shard the parameter, over dp if the role is not
  // sharded over dp; the tied embedding of the last stage comes after those of the first.
  const bool spread = is_spread(layout, role);
  const int tp_copy = spec.rule == layout::TpRule::kReplicated ? tp_rank : 0;
  const int tp_copies = spec.rule == layout::TpRule::kReplicated ? tp_size : 1;
  const int dp_copy = spread ? 0 : dp_rank;
  const int dp_copies = spread ? 1 : dp_size;
  const bool tied_copy = spec.has_copy_behind && place.at.pp != 0;
  const int replica = tp_copy + tp_copies * (dp_copy + dp_copies * (tied_copy ? 1 : 0));
  if (primary && replica != 0) return;
  std::array<int64_t, layout::kMaxAxes> local;
  const size_t axes = layout::local_dims(spec, config, tp_size, local.data());
  int64_t numel = 1;
  for (size_t axis = 0; axis < axes; ++axis) numel *= local[axis];
  const layout::FlatRange range =
      spread ? layout::distributed_range(numel, dp_size, dp_rank) : layout::FlatRange{0, numel};
  layout::for_each_local_box(spec, config, tp_size, tp_rank, range.begin, range.end,
                             [&](const int64_t* offset, const int64_t* extent) { emit(offset, extent, replica); });
}

}  // namespace

std::vector<core::ShardedTensor> shards_of_parameter(const layout::ParameterSpec& spec,
                                                     const core::TransformerConfig& config,
                                                     const layout::ModelLayout& layout, int rank,
                                                     const RoleSpec& role) {
  const RankPlace place(layout.grid(), rank);
  std::vector<core::ShardedTensor> shards;
  if (!layout::stage_holds(spec, config, layout, place.at.pp)) return shards;
  const size_t axes = spec.global_shape.size();
  for_each_shard(spec, config, layout, place, role.role, false,
                 [&](const int64_t* offset, const int64_t* extent, int replica) {
                   shards.push_back({spec.key, role.role, role.dtype, spec.global_shape,
                                     core::Dims(offset, offset + axes), core::Dims(extent, extent + axes), replica});
                 });
  return shards;
}

std::vector<core::ShardedTensor> shards_of_rank(const layout::ModelLayout& layout,
                                                const core::TransformerConfig& config, int rank,
                                                std::span<const RoleSpec> roles) {
  std::vector<core::ShardedTensor> shards;
  const auto specs = layout::parameter_specs(config);
  for (const RoleSpec& role : roles) {
    for (const layout::ParameterSpec& spec : specs) {
      if (!layout::has_role(spec, role.role)) continue;
      for (auto& shard : shards_of_parameter(spec, config, layout, rank, role)) shards.push_back(std::move(shard));
    }
  }
  return shards;
}

ShardList shards_of_checkpoint(const layout::ModelLayout& layout, const core::TransformerConfig& config,
                               std::span<const RoleSpec> roles) {
  layout::validate_layout(layout, config);
  std::vector<core::TensorRole> names;
  for (const RoleSpec& role : roles) names.push_back(role.role);
  const std::vector<layout::ParameterSpec> specs = layout::parameter_specs(config);
  const auto dtype_of = [&](size_t spec, core::TensorRole role) -> std::optional<core::DType> {
    if (!layout::has_role(specs[spec], role)) return std::nullopt;
    return std::find_if(roles.begin(), roles.end(), [&](const RoleSpec& r) { return r.role == role; })->dtype;
  };
  return shards_of_checkpoint(layout, config, specs, names, dtype_of);
}

namespace {

// Throws unless all parts of the parameter have the same size; the vocabulary is padded instead.
void validate_cut(const layout::ParameterSpec& spec, const layout::ModelLayout& layout) {
  const auto refuse = [&](int64_t size, const char* what, int64_t parts) {
    if (size % parts == 0) return;
    throw Error(ErrorCode::kInvalidArgument, cat(spec.key, ": ", size, " ", what, " cannot be split ", parts,
                                                 " ways. Choose a parallel size that divides it."));
  };
  const int tp = spec.expert >= 0 ? layout.expert_tensor_parallel_size : layout.tensor_model_parallel_size;
  if (spec.expert >= 0) refuse(spec.num_experts, "experts", layout.expert_model_parallel_size);
  if (spec.rule == layout::TpRule::kRows) refuse(spec.global_shape[0], "rows", tp);
  if (spec.rule == layout::TpRule::kGatedRows) refuse(spec.global_shape[0], "rows of gate and up", int64_t{2} * tp);
  if (spec.rule == layout::TpRule::kColumns) refuse(spec.global_shape[1], "columns", tp);
}

// The boxes of one rank, in order.
class RankBoxes {
 public:
  void clear() {
    boxes_.clear();
    dims_.clear();
  }
  void add(size_t spec, size_t axes, const int64_t* offset, const int64_t* extent) {
    boxes_.push_back({spec, axes});
    dims_.insert(dims_.end(), offset, offset + axes);
    dims_.insert(dims_.end(), extent, extent + axes);
  }
  template <class Emit>
  void for_each(const Emit& emit) const {
    const int64_t* dims = dims_.data();
    for (const auto& [spec, axes] : boxes_) {
      emit(spec, std::span(dims, axes), std::span(dims + axes, axes));
      dims += 2 * axes;
    }
  }

 private:
  std::vector<std::pair<size_t, size_t>> boxes_;  // index of the spec, axes
  std::vector<int64_t> dims_;                     // offset and extent of each box
};

}  // namespace

ShardList shards_of_checkpoint(
    const layout::ModelLayout& layout, const core::TransformerConfig& config,
    std::span<const layout::ParameterSpec> specs, std::span<const core::TensorRole> roles,
    const std::function<std::optional<core::DType>(size_t spec, core::TensorRole)>& dtype_of) {
  layout::validate_layer_map(layout, config.num_layers);
  ShardList list;
  std::vector<int32_t> tensors(specs.size() * roles.size(), -1);  // per parameter and role
  for (size_t s = 0; s < specs.size(); ++s) {
    validate_cut(specs[s], layout);
    for (size_t r = 0; r < roles.size(); ++r) {
      if (const auto dtype = dtype_of(s, roles[r])) {
        tensors[s * roles.size() + r] = list.shards.add_tensor(specs[s].key, roles[r], *dtype, specs[s].global_shape);
      }
    }
  }
  const layout::RankGrid grid = layout.grid();
  // Upper bound on the number of boxes; untouched memory costs nothing.
  size_t boxes = 0;
  for (const layout::ParameterSpec& spec : specs) {
    const size_t ranks = spec.rule == layout::TpRule::kReplicated ? 1 : static_cast<size_t>(grid.tp);
    const size_t pieces = layout.zero_stage > 0 ? 3 * static_cast<size_t>(grid.replicas()) : 1;
    boxes += ranks * pieces * (spec.rule == layout::TpRule::kGatedRows ? 2 : 1) * roles.size();
  }
  list.shards.reserve(boxes);
  std::vector<size_t> held;
  std::array<RankBoxes, 2> here;  // replicated over the data-parallel ranks, sharded over them
  for (int stage = 0; stage < layout.pipeline_model_parallel_size; ++stage) {
    held.clear();
    for (size_t s = 0; s < specs.size(); ++s) {
      if (layout::stage_holds(specs[s], config, layout, stage)) held.push_back(s);
    }
    constexpr unsigned kOfStage = layout::RankGrid::kTp | layout::RankGrid::kCp | layout::RankGrid::kDp;
    for (const int rank : grid.group(grid.rank({.pp = stage}), kOfStage)) {
      const RankPlace place(grid, rank);
      // Roles that are sharded in the same way have the same boxes.
      std::array<bool, 2> listed{};
      for (size_t r = 0; r < roles.size(); ++r) {
        const bool spread = is_spread(layout, roles[r]);
        RankBoxes& boxes_here = here[spread ? 1 : 0];
        if (!std::exchange(listed[spread ? 1 : 0], true)) {
          boxes_here.clear();
          for (const size_t s : held) {
            for_each_shard(specs[s], config, layout, place, roles[r], true,
                           [&](const int64_t* offset, const int64_t* extent, int) {
                             boxes_here.add(s, specs[s].global_shape.size(), offset, extent);
                           });
          }
        }
        boxes_here.for_each([&](size_t s, std::span<const int64_t> offset, std::span<const int64_t> extent) {
          const int32_t tensor = tensors[s * roles.size() + r];
          if (tensor < 0) return;
          list.shards.add_shard(tensor, offset, extent);
          list.ranks.push_back(rank);
        });
      }
    }
  }
  return list;
}

}  // namespace ms::ckpt
