#include "core/layout/formulas/communication_buffers.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/comm/comm_op.h"
#include "core/layout/formulas/context_traffic.h"
#include "core/layout/formulas/expert_traffic.h"
#include "core/layout/formulas/latent_traffic.h"
#include "core/layout/formulas/rounds.h"
#include "core/layout/interleave.h"
#include "core/layout/process_group_table.h"
#include "core/layout/sharding.h"

namespace ms::layout {
namespace {

constexpr int64_t kFp32 = sizeof(float), kDouble = sizeof(double);
// Of a step: those of its loss (train/loop/step.h), and those of each layer with experts beside one for each expert
// (train/loop/expert_load.cpp).
constexpr int64_t kLossSums = 3, kExpertSums = 7;

class Scratch {
 public:
  Scratch(const TrainingStep& step, int rank) : step_(step), grid_(step.grid()), rank_(rank) {}

  int64_t peak() {
    const int64_t tp = grid_.tp, rows = step_.tokens();
    const int64_t hidden = rows * step_.model.hidden_size * core::size_of(step_.dtype);
    const StageParameters stage = stage_parameters(step_, grid_.coordinates(rank_).pp);
    if (tp > 1) {
      const int64_t parts = step_.product_parts(), part = hidden / parts;  // all parts may be on their way
      largest(sums_at_once() * parts * (step_.sequence_parallel ? reduce_scatter(part, tp) : allreduce(part, tp)));
      if (grid_.query_parts > 1) {
        const int64_t others =
            (sums_at_once() - 1) * (step_.sequence_parallel ? reduce_scatter(hidden, tp) : allreduce(hidden, tp));
        largest(others + reduce_scatter(step_.query_group_bytes(), grid_.query_parts));
      }
      if (grid_.coordinates(rank_).pp == stage_of_loss(step_.layout)) {
        largest(allreduce(rows * kFp32, tp));
        if (step_.model.mtp_num_layers > 0)  // eh_proj, whose rows are two hidden states
          largest(step_.sequence_parallel ? reduce_scatter(2 * hidden, tp) : allreduce(2 * hidden, tp));
      }
    }
    if (step_.model.multi_latent_attention) {
      add_latent_backward(step_, /*layer=*/0, [&](core::CommOp op, int64_t bytes) {
        if (op == core::CommOp::kReduceScatter) largest(reduce_scatter(bytes, tp));
        if (op == core::CommOp::kAllreduce) largest(allreduce(bytes, tp));
      });
    }
    if (grid_.cp > 1) add_context();
    const int64_t partial = *std::ranges::max_element(stage.partial_grad_elems) * kFp32;
    if (partial > 0) largest(allreduce(partial, tp));
    if (step_.model.has_experts()) add_experts();
    if (step_.schedule.pairs && step_.layout.ranks_of_experts() > 1) add_pairs();
    for (const int ranks : {grid_.replicas(), grid_.pp}) {
      if (ranks > 1) largest(allreduce((kLossSums + step_.model.mtp_num_layers) * kDouble, ranks));
    }
    if (step_.model.has_experts() && grid_.world_size() > 1) {
      const int64_t of_layer = (step_.model.num_experts + kExpertSums) * kDouble;
      largest(allreduce(step_.model.num_layers_with_mtp() * of_layer, grid_.world_size()));
    }
    const bool distributed = step_.layout.sharding().state();
    if (step_.buckets.overlapped) {
      // While layers compute, buckets are on their way: their memory is beside that of what the layers wait for.
      peak_ += in_flight(stage, distributed);
    } else {
      for (const FlatRange& bucket : stage.buckets) largest(of_bucket(stage, bucket, distributed));
    }
    // After the last backward.
    const auto sums = static_cast<int64_t>(parameter_specs(step_.model).size()) * kDouble;
    const bool adds_replicas = distributed || (step_.model.has_experts() && experts_apart(grid_));
    const Sharding& sharding = stage.cut.sharding();
    if (adds_replicas && grid_.replicas() > 1)
      largest(allreduce(sums, sharding.parts_of_state() > 1 ? grid_.replicas() : sharding.owners()));
    for (const FlatRange& bucket : stage.buckets) {
      if (is_reduced_at_end(stage, bucket)) largest(of_bucket(stage, bucket, distributed));
    }
    if (sharding.gradients()) add_over_instances(stage.cut);
    if (grid_.tp * grid_.pp > 1) largest(allreduce(sums, grid_.tp * grid_.pp));
    if (has_embedding_copy(step_.model, step_.layout) && !ranks_of_group(Group::kEmbedding, grid_, rank_).empty())
      largest(allreduce(shared_embedding_elems(stage) * kFp32, 2));
    return peak_ + partial;  // a run reports the sum of both, whose memory is apart
  }

 private:
  // What a layer's attention reduces over the ranks that share a sequence.
  void add_context() {
    const int cp_rank = grid_.coordinates(rank_).cp;
    for (int64_t layer = 0; layer < step_.model.num_layers; ++layer) {
      int64_t at_once = 0;  // of keys and of values
      const auto add = [&](const ContextCalls& of) {
        const auto ranks = static_cast<int64_t>(ranks_of_group(of.group, grid_, rank_).size());
        if (of.op == core::CommOp::kReduceScatter) largest(at_once += reduce_scatter(of.bytes, ranks));
      };
      add_context_backward(step_, step_.context_algorithm_of(layer), cp_rank, KvCachePolicy::kNone, add);
    }
  }
  // What a layer with experts reduces.
  void add_experts() {
    int64_t at_once = 0;  // of groups of experts; in a backward, of rows and of their weights
    const auto exchange = [&](Group group, core::CommOp op, int64_t bytes) {
      const auto ranks = static_cast<int64_t>(ranks_of_group(group, grid_, rank_).size());
      if (op == core::CommOp::kReduceScatter) largest(at_once += reduce_scatter(bytes, ranks));
      if (op == core::CommOp::kAllreduce) largest(allreduce(bytes, ranks));
    };
    add_expert_forward(step_, exchange);
    at_once = 0;
    add_expert_backward(step_, exchange);
  }
  // Of both micro-batches of a pair, whose sub-steps post reductions, each of which is under way until the next
  // sub-step of its micro-batch begins.
  void add_pairs() {
    const Placement placement = placement_of(step_.model, step_.layout);
    const int stage = grid_.coordinates(rank_).pp, chunks = placement.chunks();
    for (int pair = 0; pair < chunks * chunks; ++pair) {
      const Place forward{stage, pair / chunks}, backward{stage, pair % chunks};
      int64_t of_forward = 0, of_backward = 0;
      for (const PairStep& step :
           pair_steps(step_.model, placement, grid_.tp, forward, backward, step_.layout.ranks_of_experts())) {
        (step.is_forward ? of_forward : of_backward) = posted(step);
        const int64_t of_shared = sum_of_shared_experts(step, placement.layers(step.is_forward ? forward : backward));
        largest(of_forward + of_backward + of_shared);
      }
    }
  }
  // Which a sub-step waits for itself.
  int64_t sum_of_shared_experts(const PairStep& step, LayerRange layers) const {
    using enum SubStep;
    const bool overlaps = step_.expert_overlap.shared_experts, follows = step.is_forward && !overlaps;
    const SubStep which = step.of_chunk.step;
    const bool has_sum = overlaps ? which == kCombine : which == kAttention || (step.is_forward && which == kResult);
    const int64_t layer = step.of_chunk.layer - (follows ? 1 : 0);  // the next one, or the result, ends the layer
    const bool is_there = has_sum && layer >= 0 && step_.model.moe_shared_expert_intermediate_size > 0;
    if (!is_there || !step_.model.layer_has_experts(layers.first + layer)) return 0;
    return reduce_scatter(step_.tokens() * step_.model.hidden_size * core::size_of(step_.dtype), grid_.tp);
  }
  int64_t posted(const PairStep& step) const {
    const int64_t rows = step_.tokens();
    const int64_t hidden = rows * step_.model.hidden_size * core::size_of(step_.dtype);
    int64_t bytes = 0;
    const SubStep which = step.of_chunk.step;
    if (which == SubStep::kAttentionReduce || which == SubStep::kMlpReduce) {
      const int64_t parts = step_.product_parts();
      return parts *
             (step_.sequence_parallel ? reduce_scatter(hidden / parts, grid_.tp) : allreduce(hidden / parts, grid_.tp));
    }
    const auto exchange = [&](Group group, core::CommOp op, int64_t payload) {
      const auto ranks = static_cast<int64_t>(ranks_of_group(group, grid_, rank_).size());
      if (op == core::CommOp::kReduceScatter) bytes += reduce_scatter(payload, ranks);
    };
    if (step.is_forward && which == SubStep::kCombine) add_expert_forward(step_, exchange);
    if (!step.is_forward && which == SubStep::kDispatch) add_expert_backward(step_, exchange);
    return bytes;
  }
  // Of hidden states over TP: two where forward and backward are interleaved, and both have some. With experts on
  // several ranks add_pairs() looks at them.
  int64_t sums_at_once() const {
    if (!step_.schedule.pairs || step_.layout.ranks_of_experts() > 1) return 1;
    const Placement placement = placement_of(step_.model, step_.layout);
    const int stage = grid_.coordinates(rank_).pp;
    const auto overlap = [&](Place forward, Place backward) {
      const bool forward_has_layers = placement.layers(forward).count > 0;
      const bool backward_has_layers = placement.layers(backward).count > 0;
      return (forward_has_layers || backward_has_layers) && (forward_has_layers || placement.is_first(forward)) &&
             (backward_has_layers || placement.is_last(backward));
    };
    return overlap({stage, 0}, {stage, 1}) || overlap({stage, 1}, {stage, 0}) ? 2 : 1;
  }
  int64_t of_bucket(const StageParameters& stage, FlatRange bucket, bool distributed) const {
    if (bucket.begin == bucket.end) return 0;
    const BufferCut::Unit& unit = stage.cut.unit_at(bucket.begin);
    const int64_t item = core::size_of(step_.reduction_dtype);
    if (unit.num_replicas == 1) return 0;
    if (!distributed || unit.whole) return allreduce((bucket.end - bucket.begin) * item, unit.num_replicas);
    const int64_t own = stage.cut.owned_counts(bucket)[static_cast<size_t>(owner_of(unit, grid_, rank_))];
    const int64_t ranks = stage.cut.num_owners(unit), instances = stage.cut.sharding().num_instances;
    const int64_t within = ranks > 1 ? reduce_scatter(own * item * ranks, ranks) : 0;
    if (instances == 1 || stage.cut.sharding().gradients()) return within;
    return std::max(within, allreduce(own * item, instances));
  }
  // Of all buckets, which may be on their way at once, or from ZeRO-2 on those of one id.
  int64_t in_flight(const StageParameters& stage, bool distributed) const {
    int64_t all = 0, most = 0;
    std::map<int64_t, int64_t> of_ids;
    for (const FlatRange& bucket : stage.buckets) {
      if (is_reduced_at_end(stage, bucket)) continue;
      const int64_t bytes = of_bucket(stage, bucket, distributed);
      all += bytes;
      if (bytes > 0) most = std::max(most, of_ids[stage.cut.unit_at(bucket.begin).id] += bytes);
    }
    return stage.cut.sharding().gradients() ? most : all;
  }
  static bool is_reduced_at_end(const StageParameters& stage, FlatRange bucket) {
    const bool is_empty = bucket.begin == bucket.end;
    return stage.cut.sharding().gradients() && !is_empty && stage.cut.unit_at(bucket.begin).whole;
  }
  void add_over_instances(const BufferCut& cut) {
    const int64_t instances = cut.sharding().num_instances;
    for (const Group replicas : {Group::kDpCp, Group::kExpertDp}) {
      const FlatRange owned = cut.owned_by_instances(replicas);
      const int64_t bytes = (owned.end - owned.begin) * kFp32;
      if (instances == 1 || bytes == 0) continue;
      largest(cut.sharding().parts_of_state() > 1 ? reduce_scatter(bytes, instances) : allreduce(bytes, instances));
    }
  }
  static int64_t allreduce(int64_t bytes, int64_t n) {
    return core::reduction_scratch_bytes(core::CommOp::kAllreduce, bytes, n);
  }
  static int64_t reduce_scatter(int64_t bytes, int64_t n) {
    return core::reduction_scratch_bytes(core::CommOp::kReduceScatter, bytes, n);
  }
  void largest(int64_t bytes) { peak_ = std::max(peak_, bytes); }

  const TrainingStep& step_;
  RankGrid grid_;
  int rank_;
  int64_t peak_ = 0;
};

}  // namespace

int64_t communication_buffer_bytes(const TrainingStep& step, int rank) {
  int64_t most = Scratch(step, rank).peak();
  for (const TrainingStep& fullest : fullest_steps(step)) most = std::max(most, Scratch(fullest, rank).peak());
  return most;
}

}  // namespace ms::layout
