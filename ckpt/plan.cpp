#include "ckpt/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>

#include "ckpt/box.h"
#include "core/error.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Dims;
using core::Error;
using core::ErrorCode;
using core::ShardedTensor;

std::string name_of(const ShardedTensor& shard) {
  return shard.role == core::TensorRole::kParam ? shard.key : cat(shard.key, " (", core::role_name(shard.role), ")");
}

std::string box_text(const ShardedTensor& shard) {
  Dims end(shard.global_offset.size());
  for (size_t a = 0; a < end.size(); ++a) end[a] = shard.global_offset[a] + shard.local_shape[a];
  return cat("[", shard.global_offset, " .. ", end, ")");
}

// Axes by number of distinct offsets, most first: the axis a tensor is cut along comes first.
std::vector<size_t> axes_by_cuts(std::span<const ShardedTensor* const> shards) {
  const size_t axes = shards.front()->global_shape.size();
  std::vector<std::pair<size_t, size_t>> counted(axes);
  std::vector<int64_t> offsets(shards.size());
  for (size_t axis = 0; axis < axes; ++axis) {
    for (size_t i = 0; i < shards.size(); ++i) offsets[i] = shards[i]->global_offset[axis];
    std::sort(offsets.begin(), offsets.end());
    const auto distinct = std::unique(offsets.begin(), offsets.end()) - offsets.begin();
    counted[axis] = {static_cast<size_t>(distinct), axis};
  }
  std::stable_sort(counted.begin(), counted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<size_t> order;
  for (const auto& [count, axis] : counted) order.push_back(axis);
  return order;
}

bool overlap(const ShardedTensor& a, const ShardedTensor& b) {
  return intersect(a.global_offset, a.local_shape, b.global_offset, b.local_shape).has_value();
}

// Does any pair overlap? Sweeps along the most cut axis. Boxes that are open there at the same time are, as long as
// none overlap, disjoint along the second axis if there are two, so that only neighbours need to be compared.
bool any_overlap(std::vector<const ShardedTensor*> shards) {
  const auto order = axes_by_cuts(shards);
  if (order.empty()) return shards.size() > 1;
  const size_t main = order[0];
  const size_t second = order.size() > 1 ? order[1] : main;
  const bool neighbours = order.size() <= 2;
  std::sort(shards.begin(), shards.end(),
            [main](const auto* a, const auto* b) { return a->global_offset[main] < b->global_offset[main]; });
  const auto less = [second](const ShardedTensor* a, const ShardedTensor* b) {
    return std::tie(a->global_offset[second], a) < std::tie(b->global_offset[second], b);
  };
  std::set<const ShardedTensor*, decltype(less)> open(less);
  const auto end_of = [main](const ShardedTensor* s) { return s->global_offset[main] + s->local_shape[main]; };
  const auto later = [&](const ShardedTensor* a, const ShardedTensor* b) { return end_of(a) > end_of(b); };
  std::priority_queue<const ShardedTensor*, std::vector<const ShardedTensor*>, decltype(later)> closing(later);
  for (const ShardedTensor* shard : shards) {
    while (!closing.empty() && end_of(closing.top()) <= shard->global_offset[main]) {
      open.erase(closing.top());
      closing.pop();
    }
    const auto at = open.insert(shard).first;
    closing.push(shard);
    if (neighbours) {
      if (at != open.begin() && overlap(**std::prev(at), *shard)) return true;
      if (std::next(at) != open.end() && overlap(**std::next(at), *shard)) return true;
    } else {
      for (const ShardedTensor* other : open) {
        if (other != shard && overlap(*other, *shard)) return true;
      }
    }
  }
  return false;
}

// The first index, in row-major order, that no shard holds. Only for messages: quadratic.
std::optional<Dims> first_hole(const std::vector<const ShardedTensor*>& shards, const Dims& shape, size_t axis) {
  if (axis == shape.size()) return shards.empty() ? std::optional<Dims>(Dims{}) : std::nullopt;
  std::vector<int64_t> cuts = {0};
  for (const auto* shard : shards) {
    cuts.push_back(shard->global_offset[axis]);
    cuts.push_back(shard->global_offset[axis] + shard->local_shape[axis]);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  for (int64_t cut : cuts) {
    if (cut < 0 || cut >= shape[axis]) continue;
    std::vector<const ShardedTensor*> here;
    for (const auto* shard : shards) {
      if (shard->global_offset[axis] <= cut && cut < shard->global_offset[axis] + shard->local_shape[axis]) {
        here.push_back(shard);
      }
    }
    if (auto hole = first_hole(here, shape, axis + 1)) {
      hole->insert(hole->begin(), cut);
      return hole;
    }
  }
  return std::nullopt;
}

// The source shards of one global tensor, checked and ordered for lookup.
struct SourceTensor {
  std::vector<int32_t> shards;  // sorted by offset along `axis`
  std::vector<int64_t> reach;   // reach[i]: largest end along axis among shards[0..i]
  size_t axis = 0;
};

SourceTensor prepare(std::span<const ShardedTensor> sources, std::vector<int32_t> indices) {
  std::vector<const ShardedTensor*> pointers;
  for (int32_t i : indices) pointers.push_back(&sources[static_cast<size_t>(i)]);
  SourceTensor tensor;
  tensor.shards = std::move(indices);
  const auto order = axes_by_cuts(pointers);
  if (order.empty()) return tensor;
  tensor.axis = order[0];
  const auto offset = [&](int32_t i) { return sources[static_cast<size_t>(i)].global_offset[tensor.axis]; };
  std::sort(tensor.shards.begin(), tensor.shards.end(), [&](int32_t a, int32_t b) { return offset(a) < offset(b); });
  int64_t reach = 0;
  for (int32_t i : tensor.shards) {
    reach = std::max(reach, offset(i) + sources[static_cast<size_t>(i)].local_shape[tensor.axis]);
    tensor.reach.push_back(reach);
  }
  return tensor;
}

}  // namespace

std::vector<std::string> check_coverage(std::span<const ShardedTensor> shards, int limit) {
  std::vector<std::string> findings;
  const auto full = [&] { return static_cast<int>(findings.size()) >= limit; };
  std::vector<const ShardedTensor*> primary;
  int64_t covered = 0;
  for (const ShardedTensor& shard : shards) {
    if (shard.replica_id != 0) continue;
    const size_t axes = shard.global_shape.size();
    if (shard.global_shape != shards.front().global_shape) {
      findings.push_back(cat(name_of(shard), ": global shapes ", shards.front().global_shape, " and ",
                             shard.global_shape, " contradict"));
    } else if (shard.global_offset.size() != axes || shard.local_shape.size() != axes) {
      findings.push_back(cat(name_of(shard), ": a box of ", shard.local_shape.size(), " axes in a tensor of ", axes));
    } else {
      bool inside = true;
      for (size_t a = 0; a < axes; ++a) {
        inside = inside && shard.global_offset[a] >= 0 && shard.local_shape[a] >= 0 &&
                 shard.local_shape[a] <= shard.global_shape[a] - shard.global_offset[a];
      }
      if (!inside) {
        findings.push_back(cat(name_of(shard), ": box ", box_text(shard), " sticks out of ", shard.global_shape));
      } else if (core::num_elements(shard.local_shape) > 0) {
        primary.push_back(&shard);
        covered += core::num_elements(shard.local_shape);
      }
    }
    if (full()) return findings;
  }
  if (!findings.empty() || shards.empty()) return findings;
  const Dims& shape = shards.front().global_shape;
  if (!primary.empty() && any_overlap(primary)) {
    for (size_t i = 0; i < primary.size() && !full(); ++i) {
      for (size_t j = i + 1; j < primary.size() && !full(); ++j) {
        if (overlap(*primary[i], *primary[j])) {
          findings.push_back(
              cat(name_of(*primary[i]), ": boxes ", box_text(*primary[i]), " and ", box_text(*primary[j]), " overlap"));
        }
      }
    }
  }
  const int64_t total = core::num_elements(shape);
  if (findings.empty() && covered == total) return findings;
  if (const auto hole = first_hole(primary, shape, 0); hole && total > 0 && !full()) {
    findings.push_back(
        cat(name_of(shards.front()), ": no shard holds element ", *hole, " of ", shape,
            findings.empty() ? cat(" (", total - covered, " of ", total, " elements are missing)") : ""));
  }
  return findings;
}

void plan_copies(std::span<const ShardedTensor> sources, std::span<const ShardedTensor> targets,
                 const std::function<void(const CopyRegion&)>& emit) {
  using Name = std::pair<std::string_view, core::TensorRole>;
  std::map<Name, std::vector<int32_t>> by_name;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].replica_id == 0) by_name[{sources[i].key, sources[i].role}].push_back(static_cast<int32_t>(i));
  }
  std::map<Name, SourceTensor> prepared;
  for (size_t t = 0; t < targets.size(); ++t) {
    const ShardedTensor& target = targets[t];
    const Name name{target.key, target.role};
    auto found = prepared.find(name);
    if (found == prepared.end()) {
      const auto indices = by_name.find(name);
      if (indices == by_name.end()) {
        throw Error(ErrorCode::kCorruptData, cat(name_of(target), ": the source has no such tensor"));
      }
      std::vector<ShardedTensor> shards;
      for (int32_t i : indices->second) shards.push_back(sources[static_cast<size_t>(i)]);
      if (const auto findings = check_coverage(shards, 1); !findings.empty()) {
        throw Error(ErrorCode::kCorruptData, findings.front());
      }
      std::vector<int32_t> filled;
      for (int32_t i : indices->second) {
        if (core::num_elements(sources[static_cast<size_t>(i)].local_shape) > 0) filled.push_back(i);
      }
      if (filled.empty()) continue;  // a tensor without elements
      found = prepared.emplace(name, prepare(sources, std::move(filled))).first;
    }
    const SourceTensor& tensor = found->second;
    const Dims& shape = sources[static_cast<size_t>(tensor.shards.front())].global_shape;
    if (shape != target.global_shape) {
      throw Error(ErrorCode::kInvalidArgument, cat(name_of(target), ": global shape ", shape, " in the source, but ",
                                                   target.global_shape, " is wanted"));
    }
    MS_CHECK(target.global_offset.size() == shape.size() && target.local_shape.size() == shape.size(), name_of(target),
             ": target box ", box_text(target));
    size_t begin = 0, end = tensor.shards.size();
    if (!shape.empty()) {
      const int64_t from = target.global_offset[tensor.axis], to = from + target.local_shape[tensor.axis];
      begin =
          static_cast<size_t>(std::upper_bound(tensor.reach.begin(), tensor.reach.end(), from) - tensor.reach.begin());
      end = static_cast<size_t>(std::lower_bound(tensor.shards.begin(), tensor.shards.end(), to,
                                                 [&](int32_t i, int64_t bound) {
                                                   return sources[static_cast<size_t>(i)].global_offset[tensor.axis] <
                                                          bound;
                                                 }) -
                                tensor.shards.begin());
    }
    for (size_t k = begin; k < end; ++k) {
      const ShardedTensor& source = sources[static_cast<size_t>(tensor.shards[k])];
      auto common = intersect(source.global_offset, source.local_shape, target.global_offset, target.local_shape);
      if (!common) continue;
      CopyRegion copy{tensor.shards[k], static_cast<int32_t>(t), common->offset, std::move(common->offset),
                      std::move(common->extent)};
      for (size_t a = 0; a < shape.size(); ++a) {
        copy.source_offset[a] -= source.global_offset[a];
        copy.target_offset[a] -= target.global_offset[a];
      }
      emit(copy);
    }
  }
}

}  // namespace ms::ckpt
