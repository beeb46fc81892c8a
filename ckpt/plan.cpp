#include "ckpt/plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/layout/box.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Dims;
using core::Error;
using core::ErrorCode;

// Up to this many boxes, comparing all pairs is faster than sorting.
constexpr size_t kFewBoxes = 24;

std::string name_of(const ShardTable& table, int32_t tensor) {
  const std::string key(table.key(tensor));
  return table.role(tensor) == core::TensorRole::kParam ? key
                                                        : cat(key, " (", core::role_name(table.role(tensor)), ")");
}

std::string box_text(const ShardTable& table, int32_t shard) {
  const auto s = static_cast<size_t>(shard);
  Dims end = table.offsets(s);
  for (size_t a = 0; a < end.size(); ++a) end[a] += table.extent(s, a);
  return cat("[", table.offsets(s), " .. ", end, ")");
}

// The boxes of one tensor, copied from the table into 64-bit columns.
struct Boxes {
  const ShardTable* table = nullptr;
  size_t axes = 0;
  std::vector<int32_t> shards;
  std::vector<int64_t> begin, end;  // [box][axis]

  size_t size() const { return shards.size(); }
  int64_t begin_of(size_t box, size_t axis) const { return begin[box * axes + axis]; }
  int64_t end_of(size_t box, size_t axis) const { return end[box * axes + axis]; }
  bool overlap(size_t a, size_t b) const {
    for (size_t axis = 0; axis < axes; ++axis) {
      if (begin_of(a, axis) >= end_of(b, axis) || begin_of(b, axis) >= end_of(a, axis)) return false;
    }
    return true;
  }
};

// The axes, sorted by their number of distinct offsets, largest first: the axis with the most cuts comes first.
std::vector<size_t> axes_by_cuts(const Boxes& boxes) {
  std::vector<std::pair<size_t, size_t>> counted(boxes.axes);
  std::vector<int64_t> offsets(boxes.size());
  for (size_t axis = 0; axis < boxes.axes; ++axis) {
    for (size_t i = 0; i < boxes.size(); ++i) offsets[i] = boxes.begin_of(i, axis);
    std::sort(offsets.begin(), offsets.end());
    const auto distinct = std::unique(offsets.begin(), offsets.end()) - offsets.begin();
    counted[axis] = {static_cast<size_t>(distinct), axis};
  }
  std::stable_sort(counted.begin(), counted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<size_t> order;
  for (const auto& [count, axis] : counted) order.push_back(axis);
  return order;
}

// True if any two boxes overlap. Sweeps along the axis with the most cuts and keeps the boxes that the sweep line
// crosses, sorted along the second axis. With at most two axes they are disjoint there until the first overlap, so a
// new box need only be compared with its two neighbours; with more axes it is compared with all.
bool any_overlap(const Boxes& boxes) {
  if (boxes.size() <= kFewBoxes) {
    for (size_t i = 0; i < boxes.size(); ++i) {
      for (size_t j = i + 1; j < boxes.size(); ++j) {
        if (boxes.overlap(i, j)) return true;
      }
    }
    return false;
  }
  const auto order = axes_by_cuts(boxes);
  if (order.empty()) return boxes.size() > 1;
  const size_t main = order[0];
  const size_t second = order.size() > 1 ? order[1] : main;
  const bool neighbours = order.size() <= 2;
  std::vector<size_t> sorted(boxes.size());
  std::iota(sorted.begin(), sorted.end(), size_t{0});
  std::sort(sorted.begin(), sorted.end(),
            [&](size_t a, size_t b) { return boxes.begin_of(a, main) < boxes.begin_of(b, main); });
  const auto less = [&](size_t a, size_t b) {
    return std::pair(boxes.begin_of(a, second), a) < std::pair(boxes.begin_of(b, second), b);
  };
  std::set<size_t, decltype(less)> open(less);
  const auto later = [&](size_t a, size_t b) { return boxes.end_of(a, main) > boxes.end_of(b, main); };
  std::priority_queue<size_t, std::vector<size_t>, decltype(later)> closing(later);
  for (const size_t box : sorted) {
    while (!closing.empty() && boxes.end_of(closing.top(), main) <= boxes.begin_of(box, main)) {
      open.erase(closing.top());
      closing.pop();
    }
    const auto at = open.insert(box).first;
    closing.push(box);
    if (neighbours) {
      if (at != open.begin() && boxes.overlap(*std::prev(at), box)) return true;
      if (std::next(at) != open.end() && boxes.overlap(*std::next(at), box)) return true;
    } else {
      for (const size_t other : open) {
        if (other != box && boxes.overlap(other, box)) return true;
      }
    }
  }
  return false;
}

// The first index, in row-major order, that no box holds. Quadratic in the boxes, so only for error messages.
std::optional<Dims> first_hole(const Boxes& boxes, const std::vector<size_t>& chosen, std::span<const int64_t> shape,
                               size_t axis) {
  if (axis == shape.size()) return chosen.empty() ? std::optional<Dims>(Dims{}) : std::nullopt;
  std::vector<int64_t> cuts = {0};
  for (const size_t box : chosen) {
    cuts.push_back(boxes.begin_of(box, axis));
    cuts.push_back(boxes.end_of(box, axis));
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  for (const int64_t cut : cuts) {
    if (cut >= shape[axis]) continue;
    std::vector<size_t> here;
    for (const size_t box : chosen) {
      if (boxes.begin_of(box, axis) <= cut && cut < boxes.end_of(box, axis)) here.push_back(box);
    }
    if (auto hole = first_hole(boxes, here, shape, axis + 1)) {
      hole->insert(hole->begin(), cut);
      return hole;
    }
  }
  return std::nullopt;
}

// Fills `boxes` with the tensor's shards that have elements; returns the errors found in them.
std::vector<std::string> check_tensor(const ShardTable& table, const ShardsOfTensors& groups, int32_t tensor, int limit,
                                      Boxes& boxes) {
  std::vector<std::string> findings;
  const auto full = [&] { return static_cast<int>(findings.size()) >= limit; };
  const auto shape = table.global_shape(tensor);
  boxes.table = &table;
  boxes.axes = shape.size();
  boxes.shards.clear();
  boxes.begin.clear();
  boxes.end.clear();
  __int128 covered = 0;
  int64_t total = 1;
  for (const int64_t size : shape) total *= size;
  for (size_t i = 0; i < groups.count(tensor); ++i) {
    const int32_t shard = groups.member(tensor, i);
    const auto s = static_cast<size_t>(shard);
    if (table.replica_id(s) != 0) continue;
    bool inside = true;
    int64_t elements = 1;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const int64_t offset = table.offset(s, axis), extent = table.extent(s, axis);
      inside = inside && extent <= shape[axis] - offset;
      if (inside) elements *= extent;
    }
    if (!inside) {
      findings.push_back(
          cat(name_of(table, tensor), ": box ", box_text(table, shard), " is outside the shape ", shape));
    } else if (elements > 0) {
      boxes.shards.push_back(shard);
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        boxes.begin.push_back(table.offset(s, axis));
        boxes.end.push_back(table.offset(s, axis) + table.extent(s, axis));
      }
      covered += elements;
    }
    if (full()) return findings;
  }
  if (!findings.empty()) return findings;
  if (boxes.size() > 1 && any_overlap(boxes)) {
    for (size_t i = 0; i < boxes.size() && !full(); ++i) {
      for (size_t j = i + 1; j < boxes.size() && !full(); ++j) {
        if (boxes.overlap(i, j)) {
          findings.push_back(cat(name_of(table, tensor), ": boxes ", box_text(table, boxes.shards[i]), " and ",
                                 box_text(table, boxes.shards[j]), " overlap"));
        }
      }
    }
  }
  if (findings.empty() && covered == total) return findings;
  if (full() || total == 0) return findings;
  std::vector<size_t> all(boxes.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (const auto hole = first_hole(boxes, all, shape, 0)) {
    findings.push_back(
        cat(name_of(table, tensor), ": no shard holds element ", *hole, " of ", shape,
            findings.empty() ? cat(" (", total - static_cast<int64_t>(covered), " of ", total, " elements are missing)")
                             : ""));
  }
  return findings;
}

}  // namespace

ShardsOfTensors::ShardsOfTensors(const ShardTable& table) : first_(table.num_tensors() + 1, 0) {
  bool grouped = true;
  for (size_t i = 0; i < table.size(); ++i) {
    ++first_[index(table.tensor_of(i)) + 1];
    grouped = grouped && (i == 0 || table.tensor_of(i) >= table.tensor_of(i - 1));
  }
  for (size_t t = 0; t < table.num_tensors(); ++t) first_[t + 1] += first_[t];
  if (grouped) return;
  std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
  members_.resize(table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    members_[next[index(table.tensor_of(i))]++] = static_cast<int32_t>(i);
  }
}

struct Planner::Impl {
  // The shards of a tensor, sorted by their begin along one axis.
  struct Sorted {
    size_t axis = 0;
    std::vector<int32_t> shards;
    std::vector<int64_t> begins;
    std::vector<int64_t> reach;  // reach[i]: largest end along the axis among shards[0..i]
  };
  // State of a source tensor: not checked yet, complete with few shards, or kSorted + an index into `sorted`.
  enum State : int32_t { kUnseen = -2, kFew = -1, kSorted = 0 };

  Impl(const ShardTable& source_table, const ShardTable& target_table)
      : sources(source_table), targets(target_table), groups(source_table), state(source_table.num_tensors(), kUnseen) {
    source_of.reserve(targets.num_tensors());
    for (size_t t = 0; t < targets.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      source_of.push_back(sources.find(targets.key(tensor), targets.role(tensor)).value_or(-1));
    }
  }

  void prepare(int32_t tensor) {
    if (const auto findings = check_tensor(sources, groups, tensor, 1, boxes); !findings.empty()) {
      throw Error(ErrorCode::kCorruptData, findings.front());
    }
    int32_t& here = state[static_cast<size_t>(tensor)];
    if (groups.count(tensor) <= kFewBoxes || boxes.axes == 0) {
      here = kFew;
      return;
    }
    Sorted order;
    order.axis = axes_by_cuts(boxes).front();
    std::vector<size_t> by_begin(boxes.size());
    std::iota(by_begin.begin(), by_begin.end(), size_t{0});
    std::sort(by_begin.begin(), by_begin.end(),
              [&](size_t a, size_t b) { return boxes.begin_of(a, order.axis) < boxes.begin_of(b, order.axis); });
    int64_t reach = 0;
    for (const size_t box : by_begin) {
      reach = std::max(reach, boxes.end_of(box, order.axis));
      order.shards.push_back(boxes.shards[box]);
      order.begins.push_back(boxes.begin_of(box, order.axis));
      order.reach.push_back(reach);
    }
    here = kSorted + static_cast<int32_t>(sorted.size());
    sorted.push_back(std::move(order));
  }

  // Emits the intersection of a source shard with the target box [begin, end); returns its number of elements.
  int64_t copy(int32_t shard, const int64_t* begin, const int64_t* end, size_t axes,
               const std::function<void(const CopyRegion&)>& emit) {
    const auto s = static_cast<size_t>(shard);
    int64_t elements = 1;
    for (size_t axis = 0; axis < axes; ++axis) {
      const int64_t source_begin = sources.offset(s, axis);
      const int64_t from = std::max(begin[axis], source_begin);
      const int64_t to = std::min(end[axis], source_begin + sources.extent(s, axis));
      if (to <= from) return 0;
      elements *= to - from;
      region.source_offset[axis] = from - source_begin;
      region.target_offset[axis] = from - begin[axis];
      region.extent[axis] = to - from;
    }
    region.source_shard = shard;
    emit(region);
    return elements;
  }

  const ShardTable& sources;
  const ShardTable& targets;
  ShardsOfTensors groups;          // of the sources
  std::vector<int32_t> source_of;  // source tensor of each target tensor; -1: none
  std::vector<int32_t> state;      // per source tensor
  std::vector<Sorted> sorted;
  Boxes boxes;        // scratch
  CopyRegion region;  // scratch
};

Planner::Planner(const ShardTable& sources, const ShardTable& targets)
    : impl_(std::make_unique<Impl>(sources, targets)) {}
Planner::~Planner() = default;

void Planner::copies_of(int32_t target, const std::function<void(const CopyRegion&)>& emit) {
  Impl& impl = *impl_;
  const auto t = static_cast<size_t>(target);
  const int32_t target_tensor = impl.targets.tensor_of(t);
  const int32_t tensor = impl.source_of[static_cast<size_t>(target_tensor)];
  if (tensor < 0 || impl.groups.count(tensor) == 0) {
    throw Error(ErrorCode::kCorruptData, cat(name_of(impl.targets, target_tensor), ": the source has no such tensor"));
  }
  const auto shape = impl.sources.global_shape(tensor), wanted = impl.targets.global_shape(target_tensor);
  if (!std::equal(shape.begin(), shape.end(), wanted.begin(), wanted.end())) {
    throw Error(ErrorCode::kInvalidArgument, cat(name_of(impl.targets, target_tensor), ": global shape ", shape,
                                                 " in the source, but the target has ", wanted));
  }
  if (impl.state[static_cast<size_t>(tensor)] == Impl::kUnseen) impl.prepare(tensor);
  const size_t axes = shape.size();
  std::array<int64_t, layout::kMaxAxes> begin, end;
  for (size_t axis = 0; axis < axes; ++axis) {
    begin[axis] = impl.targets.offset(t, axis);
    end[axis] = begin[axis] + impl.targets.extent(t, axis);
    MS_CHECK(end[axis] <= shape[axis], name_of(impl.targets, target_tensor), ": target box ",
             box_text(impl.targets, target));
  }
  impl.region.target_shard = target;
  impl.region.source_offset.resize(axes);
  impl.region.target_offset.resize(axes);
  impl.region.extent.resize(axes);
  const int32_t state = impl.state[static_cast<size_t>(tensor)];
  int64_t left = impl.targets.elements(t);
  if (state == Impl::kFew) {
    // Try all of them until the target is full, starting at its likely index if they are equal and in order.
    const size_t count = impl.groups.count(tensor);
    double place = 0;
    for (size_t axis = 0; axis < axes; ++axis) {
      if (shape[axis] > 0) place = std::max(place, static_cast<double>(begin[axis]) / static_cast<double>(shape[axis]));
    }
    auto i = std::min(count - 1, static_cast<size_t>(place * static_cast<double>(count)));
    for (size_t tried = 0; tried < count && left > 0; ++tried) {
      const int32_t shard = impl.groups.member(tensor, i);
      if (impl.sources.replica_id(static_cast<size_t>(shard)) == 0) {
        left -= impl.copy(shard, begin.data(), end.data(), axes, emit);
      }
      i = i + 1 == count ? 0 : i + 1;
    }
    return;
  }
  const Impl::Sorted& order = impl.sorted[static_cast<size_t>(state - Impl::kSorted)];
  const int64_t from = begin[order.axis], to = end[order.axis];
  size_t k = static_cast<size_t>(std::upper_bound(order.reach.begin(), order.reach.end(), from) - order.reach.begin());
  for (; k < order.shards.size() && order.begins[k] < to && left > 0; ++k) {
    left -= impl.copy(order.shards[k], begin.data(), end.data(), axes, emit);
  }
}

void plan_copies(const ShardTable& sources, const ShardTable& targets,
                 const std::function<void(const CopyRegion&)>& emit) {
  Planner planner(sources, targets);
  for (size_t t = 0; t < targets.size(); ++t) planner.copies_of(static_cast<int32_t>(t), emit);
}

void check_coverage(const ShardTable& shards, int limit,
                    const std::function<void(int32_t tensor, std::string text)>& finding) {
  const ShardsOfTensors groups(shards);
  Boxes boxes;
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    for (std::string& text : check_tensor(shards, groups, tensor, limit, boxes)) finding(tensor, std::move(text));
  }
}

std::vector<std::string> check_coverage(const ShardTable& shards, int limit) {
  std::vector<std::string> findings;
  check_coverage(shards, limit, [&](int32_t, std::string text) { findings.push_back(std::move(text)); });
  return findings;
}

}  // namespace ms::ckpt
