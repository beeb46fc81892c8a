#include "core/layout/buffer_cut.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace ms::layout {

int64_t unit_of(const ParameterSpec& spec) {
  return spec.key == "embedding.position_embeddings.weight" ? kPositionsUnit : spec.layer;
}

BufferCut::BufferCut(const Sharding& sharding, const RankGrid& grid)
    : sharding_(sharding), expert_replicas_(experts_apart(grid) ? grid.expert_dp() : 0) {
  if (cuts_layers()) return;
  units_.push_back({.num_replicas = sharding.data_parallel_size});
  if (expert_replicas_ > 0) {
    units_.push_back({.replicas = Group::kExpertDp, .num_replicas = expert_replicas_, .owners = Group::kExpertDp});
  }
}

BufferCut::Place BufferCut::add(const ParameterSpec& spec, int64_t numel) {
  const bool is_apart = spec.expert >= 0 && expert_replicas_ > 0;
  MS_CHECK(!is_apart || (!sharding_.gradients() && sharding_.num_instances == 1), spec.key,
           ": experts of other ranks than the rest from ZeRO-2 on, or with instances");
  const Group replicas = is_apart ? Group::kExpertDp : Group::kDpCp;
  const int64_t id = cuts_layers() ? layout::unit_of(spec) : 0;
  // Experts come between other parameters of their layer.
  size_t behind = units_.size();
  while (behind > 0 && (units_[behind - 1].id != id || units_[behind - 1].replicas != replicas)) --behind;
  if (behind == 0) {
    const int num_replicas = is_apart ? expert_replicas_ : sharding_.data_parallel_size;
    const Group owners = sharding_.num_instances > 1 ? Group::kDpShard : replicas;
    units_.push_back({.id = id, .replicas = replicas, .num_replicas = num_replicas, .owners = owners});
    behind = units_.size();
  }
  const Place place{behind - 1, 0};
  Unit& unit = units_[place.unit];
  const int64_t offset = std::exchange(unit.range.end, unit.range.end + aligned_size(numel));
  unit.starts.push_back(offset);
  unit.num_elements += numel;
  return {place.unit, offset};
}

void BufferCut::finish(int64_t begin) {
  int64_t owned = 0;
  for (Unit& unit : units_) {
    unit.range = {begin, begin + buffer_size(unit.range.end, unit.num_replicas)};
    unit.owned_begin = owned;
    begin = unit.range.end;
    owned += (unit.range.end - unit.range.begin) / num_owners(unit);
  }
}

int64_t BufferCut::size() const { return units_.empty() ? 0 : units_.back().range.end - units_.front().range.begin; }

int64_t BufferCut::largest_unit() const {
  int64_t largest = 0;
  for (const Unit& unit : units_) largest = std::max(largest, unit.range.end - unit.range.begin);
  return largest;
}

int64_t BufferCut::owned_size() const {
  if (units_.empty()) return 0;
  const Unit& last = units_.back();
  return last.owned_begin + (last.range.end - last.range.begin) / num_owners(last);
}

FlatRange BufferCut::owned_block(const Unit& unit, int owner) const {
  if (num_owners(unit) == 1) return unit.range;
  const FlatRange block = block_of_buffer(unit.range.end - unit.range.begin, num_owners(unit), owner);
  return {unit.range.begin + block.begin, unit.range.begin + block.end};
}

const BufferCut::Unit& BufferCut::unit_at(int64_t element) const {
  const auto after = std::ranges::upper_bound(units_, element, {}, [](const Unit& unit) { return unit.range.begin; });
  MS_CHECK(after != units_.begin(), "element ", element, " is in no unit");
  return after[-1];
}

FlatRange BufferCut::owned_part(FlatRange elements, int owner) const {
  const FlatRange block = owned_block(unit_at(elements.begin), owner);
  return {std::max(elements.begin, block.begin), std::min(elements.end, block.end)};
}

FlatRange BufferCut::owned_place(FlatRange part, int owner) const {
  const Unit& unit = unit_at(part.begin);
  const int64_t begin = unit.owned_begin + part.begin - owned_block(unit, owner).begin;
  return {begin, begin + part.end - part.begin};
}

std::vector<int64_t> BufferCut::owned_counts(FlatRange range) const {
  if (units_.empty()) return std::vector<int64_t>(static_cast<size_t>(sharding_.owners()));
  const Unit& unit = unit_at(range.begin);
  std::vector<int64_t> counts;
  for (int owner = 0; owner < unit.num_replicas / sharding_.num_instances; ++owner) {
    const FlatRange block = owned_block(unit, owner);
    counts.push_back(std::max<int64_t>(0, std::min(block.end, range.end) - std::max(block.begin, range.begin)));
  }
  return counts;
}

int owner_of(const BufferCut::Unit& unit, const RankGrid& grid, int rank) {
  if (unit.owners == Group::kExpertDp) return grid.expert_coordinates(rank).expert_dp;
  const int replica = grid.replica(grid.coordinates(rank));
  return unit.owners == Group::kDpShard ? replica % (grid.dp / grid.dp_replica) : replica;
}

}  // namespace ms::layout
