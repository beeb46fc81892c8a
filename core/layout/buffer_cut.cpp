#include "core/layout/buffer_cut.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"

namespace ms::layout {

int64_t unit_of(const ParameterSpec& spec) {
  return spec.key == "embedding.position_embeddings.weight" ? kPositionsUnit : spec.layer;
}

BufferCut::BufferCut(const Sharding& sharding, const RankGrid& grid)
    : sharding_(sharding), expert_replicas_(experts_apart(grid) ? grid.expert_dp() : 0) {
  if (cuts_layers()) return;
  units_.push_back(unit_of_replicas(/*is_apart=*/false));
  if (expert_replicas_ > 0) units_.push_back(unit_of_replicas(/*is_apart=*/true));
}

BufferCut::Unit BufferCut::unit_of_replicas(bool is_apart) const {
  const bool has_instances = sharding_.num_instances > 1;
  if (!is_apart) {
    return {.num_replicas = sharding_.data_parallel_size, .owners = has_instances ? Group::kDpShard : Group::kDpCp};
  }
  return {.replicas = Group::kExpertDp,
          .num_replicas = expert_replicas_,
          .owners = has_instances ? Group::kExpertDpShard : Group::kExpertDp,
          .instances = Group::kExpertDpReplica};
}

BufferCut::Place BufferCut::add(const ParameterSpec& spec, int64_t numel) {
  const bool is_apart = spec.expert >= 0 && expert_replicas_ > 0;
  const bool is_whole = cuts_layers() && numel < sharding_.least_divided_elems;
  const Group replicas = is_apart ? Group::kExpertDp : Group::kDpCp;
  const int64_t id = is_whole ? kWholeUnit : cuts_layers() ? layout::unit_of(spec) : 0;
  // Experts come between other parameters of their layer.
  size_t behind = units_.size();
  while (behind > 0 && (units_[behind - 1].id != id || units_[behind - 1].replicas != replicas)) --behind;
  if (behind == 0) {
    Unit& unit = units_.emplace_back(unit_of_replicas(is_apart));
    unit.id = id;
    unit.whole = is_whole;
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
  for (Unit& unit : units_) {
    unit.range = {begin, begin + buffer_size(unit.range.end, unit.num_replicas)};
    begin = unit.range.end;
  }
  int64_t owned = 0;
  for (size_t section = 0; section < sections_.size(); ++section) {
    sections_[section].begin = owned;
    for (Unit& unit : units_) {
      if (section_of(unit) != section) continue;
      unit.owned_begin = owned;
      owned += (unit.range.end - unit.range.begin) / num_owners(unit);
    }
    sections_[section].end = owned;
  }
}

int64_t BufferCut::size() const { return units_.empty() ? 0 : units_.back().range.end - units_.front().range.begin; }

int64_t BufferCut::largest_unit() const {
  std::map<int64_t, int64_t> of_ids;
  int64_t largest = 0;
  for (const Unit& unit : units_) {
    if (num_owners(unit) > 1) largest = std::max(largest, of_ids[unit.id] += unit.range.end - unit.range.begin);
  }
  return largest;
}

int64_t BufferCut::num_divided_ids() const {
  std::vector<int64_t> ids;
  for (const Unit& unit : units_) {
    if (num_owners(unit) > 1 && std::ranges::find(ids, unit.id) == ids.end()) ids.push_back(unit.id);
  }
  return static_cast<int64_t>(ids.size());
}

int64_t BufferCut::owned_size() const { return sections_.back().end; }

int64_t BufferCut::state_size() const {
  int64_t size = sections_.back().end - sections_.back().begin;
  for (size_t section = 0; section + 1 < sections_.size(); ++section)
    size += (sections_[section].end - sections_[section].begin) / sharding_.parts_of_state();
  return size;
}

FlatRange BufferCut::state_block(const Unit& unit, int instance) const {
  const FlatRange section = sections_[section_of(unit)];
  if (unit.whole || sharding_.parts_of_state() == 1) return section;
  const FlatRange block = block_of_buffer(section.end - section.begin, sharding_.parts_of_state(), instance);
  return {section.begin + block.begin, section.begin + block.end};
}

FlatRange BufferCut::state_place(const Unit& unit, FlatRange owned, int instance) const {
  const int64_t parts = sharding_.parts_of_state();
  const FlatRange block = state_block(unit, instance);
  // What comes before is divided, too.
  const int64_t begin = sections_[section_of(unit)].begin / parts + owned.begin - block.begin;
  return {begin, begin + owned.end - owned.begin};
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
  for (int owner = 0; owner < num_owners(unit); ++owner) {
    const FlatRange block = owned_block(unit, owner);
    counts.push_back(std::max<int64_t>(0, std::min(block.end, range.end) - std::max(block.begin, range.begin)));
  }
  return counts;
}

int owner_of(const BufferCut::Unit& unit, const RankGrid& grid, int rank) {
  if (unit.replicas == Group::kExpertDp) return grid.expert_coordinates(rank).expert_dp % grid.expert_dp_shard();
  return grid.replica(grid.coordinates(rank)) % (grid.replicas() / grid.dp_replica);
}

int instance_of(const RankGrid& grid, int rank) { return grid.coordinates(rank).dp / (grid.dp / grid.dp_replica); }

}  // namespace ms::layout
