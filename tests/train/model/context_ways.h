// Core attention of ranks that share a sequence, alone: what they attend, and how.
#pragma once

#include <memory>
#include <vector>

#include "core/layout/adaptive_plan.h"
#include "core/layout/mask_grid.h"
#include "tests/train/model/rank.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/model/core_attention.h"
#include "train/ops/attention.h"

namespace ms::train {

inline constexpr int64_t kSeq = 48, kBatch = 2, kHeads = 8;

struct Case {
  const char* name;
  int64_t groups, d, value_d;
  ops::AttentionParams params = {};
  std::vector<int64_t> ends = {};  // of documents
  std::shared_ptr<const layout::MaskGrid> grid = nullptr;
};
extern const std::vector<Case> kCases;
// Of kCases.
inline constexpr size_t kPrefixCase = 16, kGridCase = 19, kGeneralGridCase = 20;
inline const std::vector<int64_t> kSamples = {3, 14};  // numbers in the run

// How so many ranks attend.
struct Way {
  layout::ContextAlgorithm algorithm;
  int size, ulysses_degree = 1, window = 1;
  bool overlaps = true;
  layout::KvCachePolicy cache = layout::KvCachePolicy::kNone;
  bool gathers_keys = false;
  std::shared_ptr<const layout::AdaptivePlan> plan = nullptr;  // null: what the documents give
  bool is_among_others = false;  // kUlysses in a layer among those of other algorithms, which are zig-zag

  bool is_zigzag() const { return is_among_others || layout::is_zigzag(algorithm); }
};

// Adaptive algorithms know no distances.
bool can_attend(const Way& way, const Case& of);

// The groups of a rank.
struct Groups {
  Groups(core::Endpoint& endpoint, const Way& way)
      : parts(context_parts(way.algorithm, way.size, way.ulysses_degree, way.window)),
        grid{.cp = way.size, .cp_window = parts.window, .cp_ring = parts.ring},
        all(open_group(endpoint, grid, layout::Group::kCp)),
        heads(open_group(endpoint, grid, layout::group_of_heads(grid, parts))),
        window(open_group(endpoint, grid, layout::Group::kCpWindow)),
        ring(open_group(endpoint, grid, layout::group_of_ring(grid, parts))) {}

  layout::ContextParts parts;
  layout::RankGrid grid;
  core::Communicator all, heads, window, ring;
};

// What a rank has of the sequences.
layout::SequenceShare share_of(const Way& way, const Case& of, int rank);
SequenceContext context_of(const Case& of, const layout::SequenceShare& share);
std::unique_ptr<CoreAttention> make(const Way& way, ops::Context& ops, Groups& groups, const Case& of);

// Whole tensors [seq, batch, heads, d], the same on all ranks.
struct Inputs {
  Inputs(ops::Context& ops, core::DType dtype, const Case& of);
  core::Tensor q, k, v, dout;
};
// The first `rows` of a share.
core::Tensor rows_of(ops::Context& ops, const core::Tensor& whole, const layout::SequenceShare& share, int64_t rows);

}  // namespace ms::train
