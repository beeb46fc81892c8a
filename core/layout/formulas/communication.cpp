#include "core/layout/formulas/communication.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/comm/two_levels.h"
#include "core/layout/formulas/context_traffic.h"
#include "core/layout/formulas/expert_traffic.h"
#include "core/layout/formulas/latent_traffic.h"
#include "core/layout/schedule.h"
#include "core/layout/slot_policy.h"
#include "core/layout/unit_uses.h"

namespace ms::layout {
namespace {

using core::CommOp;

class Counting {
 public:
  Counting(const TrainingStep& step, int rank, int ranks_per_node)
      : step_(step),
        rank_(rank),
        ranks_per_node_(ranks_per_node),
        grid_(step.grid()),
        at_(grid_.coordinates(rank)),
        placement_(placement_of(step.model, step.layout)),
        policy_(step, at_.pp),
        parts_(step.product_parts()) {}

  std::vector<Traffic> count() {
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk) count_chunk({at_.pp, chunk});
    count_batch_sums();
    count_gradients();
    std::vector<Traffic> result;
    for (const auto& [key, traffic] : counted_) result.push_back(traffic);
    return result;
  }

 private:
  // A call in a group of one rank counts, too: its caller decides whether there is one.
  void add(Group group, CommOp op, int64_t payload_bytes, int64_t calls = 1) {
    if (calls == 0) return;
    const std::vector<int> ranks = ranks_of_group(group, grid_, rank_);
    const auto size = static_cast<int64_t>(ranks.size());
    const int64_t sent = calls * core::ring_bytes(op, payload_bytes, size);
    Traffic& traffic = counted_.try_emplace({group, op}, Traffic{group, op}).first->second;
    traffic.calls += calls;
    traffic.payload_bytes += calls * payload_bytes;
    traffic.ring_bytes += sent;
    if (size > 1) traffic.remote_bytes += calls * remote_bytes(op, payload_bytes, ranks);
  }

  // Of what a collective sends: in two levels to this rank's like on other nodes, else as much to each of the others.
  int64_t remote_bytes(CommOp op, int64_t payload_bytes, const std::vector<int>& ranks) const {
    const auto size = static_cast<int64_t>(ranks.size());
    const bool spreads = size > core::kDirectMembers && payload_bytes <= size * core::kSmallAllreduceBytes;
    const bool has_levels = op == CommOp::kReduceScatter || (op == CommOp::kAllgather && !spreads) ||
                            (op == CommOp::kAllreduce && payload_bytes > core::kSmallAllreduceBytes);
    const auto levels = has_levels ? levels_of(ranks) : std::nullopt;
    if (levels) {
      const auto nodes = static_cast<int64_t>(levels->across.size());
      return core::ring_bytes(op, payload_bytes / static_cast<int64_t>(levels->within.size()), nodes);
    }
    const int64_t remote = std::ranges::count_if(ranks, [this](int other) { return is_remote(other); });
    return core::ring_bytes(op, payload_bytes, size) * remote / (size - 1);
  }

  std::optional<core::TwoLevels> levels_of(const std::vector<int>& ranks) const {
    if (ranks_per_node_ == 0) return std::nullopt;
    std::vector<int> nodes;
    for (const int rank : ranks) nodes.push_back(rank / ranks_per_node_);
    return core::two_levels_of(nodes, static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin()));
  }

  bool is_remote(int other) const { return ranks_per_node_ > 0 && other / ranks_per_node_ != rank_ / ranks_per_node_; }

  int64_t hidden_bytes() const { return step_.tokens() * step_.model.hidden_size * core::size_of(step_.dtype); }

  // train/parallel/mappings.h: the functions around a pair of linear layers. parts: of a product.
  // width: hidden states beside each other in a row.
  void enter_column_parallel(int64_t calls, int64_t parts = 1, int64_t width = 1) {
    if (step_.sequence_parallel) add(Group::kTp, CommOp::kAllgather, width * hidden_bytes() / parts, calls * parts);
  }
  void leave_row_parallel(int64_t calls, int64_t parts = 1, int64_t width = 1) {
    if (grid_.tp == 1) return;
    add(Group::kTp, step_.sequence_parallel ? CommOp::kReduceScatter : CommOp::kAllreduce,
        width * hidden_bytes() / parts, calls * parts);
  }

  // train/parallel/query_groups.h
  void share_query_groups(CommOp op, int64_t calls) {
    if (grid_.query_parts > 1) add(Group::kQueryGroup, op, step_.query_group_bytes(), calls);
  }

  // Forward of a layer: attention and MLP, or experts.
  void layer_forward(int64_t layer, int64_t calls) {
    enter_column_parallel(column_blocks(layer) * calls, parts_);
    share_query_groups(CommOp::kAllgather, calls);
    leave_row_parallel(dense_blocks(layer) * calls, parts_);
    context(add_context_forward, layer, calls);
    if (step_.model.multi_latent_attention) latent(add_latent_forward, calls);
    if (step_.model.layer_has_experts(layer)) exchange(add_expert_forward, calls);
  }
  // A forward that stops at what the MLP's backward reads (TransformerLayer::refill).
  void layer_refill(int64_t layer, int64_t calls) {
    const core::TransformerConfig& model = step_.model;
    const bool has_experts = model.layer_has_experts(layer);
    const bool has_block = !has_experts || model.moe_shared_expert_intermediate_size > 0;
    const bool has_result = has_block && (model.post_norm || (has_experts && model.moe_shared_expert_gate));
    enter_column_parallel(column_blocks(layer) * calls, parts_);
    share_query_groups(CommOp::kAllgather, calls);
    leave_row_parallel((has_result ? 2 : 1) * calls, parts_);
    context(add_context_forward, layer, calls);
    if (model.multi_latent_attention) latent(add_latent_forward, calls);
    if (has_experts) exchange(add_dispatch, calls);
    if (has_experts && model.post_norm) exchange(add_combine, calls);
  }
  // Each product's input or gradient is gathered for its weight's gradient, and again for linear_fc1 run again.
  void layer_backward(const LayerSlots& slots, int64_t layer, int64_t calls) {
    const bool has_experts = step_.model.layer_has_experts(layer);
    const bool runs_fc1_again = !has_experts && slots.module_drops(SavedSlot::kFc1);
    enter_column_parallel((dense_blocks(layer) + (runs_fc1_again ? 1 : 0)) * calls, parts_);
    int64_t gathers = column_blocks(layer);
    for (const char* linear : {"self_attention.linear_qkv", "mlp.linear_fc1", "mlp.shared_experts.linear_fc1"})
      gathers -= is_frozen(step_, layer, linear) ? 1 : 0;
    enter_column_parallel(gathers * calls);
    share_query_groups(CommOp::kReduceScatter, calls);
    leave_row_parallel(column_blocks(layer) * calls);
    const KvCachePolicy policy = slots.kv_cache();
    context([policy](const TrainingStep& step, ContextAlgorithm algorithm, int cp_rank,
                     const AddContextTraffic& add) { add_context_backward(step, algorithm, cp_rank, policy, add); },
            layer, calls);
    if (has_experts) experts_backward(slots, layer, calls);
    if (!step_.model.multi_latent_attention) return;
    if (slots.module_drops(SavedSlot::kQ)) {
      latent(add_latent_recompute, calls);
      context(add_context_refill, layer, calls);
    }
    latent([layer](const TrainingStep& step, const AddTpTraffic& add) { add_latent_backward(step, layer, add); },
           calls);
  }
  // Of experts, with what they run again for themselves.
  void experts_backward(const LayerSlots& slots, int64_t layer, int64_t calls) {
    exchange(add_expert_backward, calls);
    const bool runs_all_again = slots.module_drops(SavedSlot::kRouting);
    if (runs_all_again) {
      exchange(add_dispatch, calls);
    } else if (slots.module_drops(SavedSlot::kPermuted)) {
      exchange(add_dispatch_again, calls);
    }
    if (dense_blocks(layer) == 1 || !(runs_all_again || slots.module_drops(SavedSlot::kShared))) return;
    enter_column_parallel(calls);
    if (step_.model.moe_shared_expert_gate) leave_row_parallel(calls);
  }
  // Pairs of linear layers that TP cuts: attention, and an MLP or shared experts.
  int64_t dense_blocks(int64_t layer) const {
    return step_.model.layer_has_experts(layer) && step_.model.moe_shared_expert_intermediate_size == 0 ? 1 : 2;
  }
  // Those of them whose first layer is column-parallel and reads the hidden state.
  int64_t column_blocks(int64_t layer) const {
    return dense_blocks(layer) - (step_.model.multi_latent_attention ? 1 : 0);
  }
  template <class AddLatent>
  void latent(const AddLatent& add_latent, int64_t calls) {
    add_latent(step_, [&](CommOp op, int64_t bytes) { add(Group::kTp, op, bytes, calls); });
  }
  template <class AddContext>
  void context(const AddContext& add_context, int64_t layer, int64_t calls) {
    if (grid_.cp == 1) return;
    add_context(step_, step_.context_algorithm_of(layer), at_.cp, [&](const ContextCalls& of) {
      if (of.op != CommOp::kSend) return add(of.group, of.op, of.bytes, calls * of.calls);
      const std::vector<int> ranks = ranks_of_group(of.group, grid_, rank_);
      const auto size = static_cast<int>(ranks.size());
      const auto own = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
      add_sends(of.group, of.bytes, calls * of.calls, ranks[static_cast<size_t>((own + of.to + size) % size)]);
    });
  }
  template <class AddExchange>
  void exchange(const AddExchange& add_exchange, int64_t calls) {
    add_exchange(step_, [&](Group group, CommOp op, int64_t bytes) { add(group, op, bytes, calls); });
  }

  // Of so many micro-batches through the layers of a chunk.
  void count_layers(const SlotTable& table, int64_t first, int64_t microbatches) {
    for (int64_t layer = 0; layer < table.layers(); ++layer) {
      const bool is_refilled = table[layer].runs_again() && table.ends_group(layer);
      count_layer(table[layer], is_refilled, first + layer, microbatches);
      if (!is_refilled) continue;
      // The backward of a group's last layer runs the whole group again, its own layer only as far as necessary.
      for (int64_t again = table.group_begin(layer); again < layer; ++again) layer_forward(first + again, microbatches);
    }
  }
  void count_layer(const LayerSlots& slots, bool is_refilled, int64_t layer, int64_t microbatches) {
    layer_forward(layer, microbatches);
    layer_backward(is_refilled ? slots.refilled(step_.model.post_norm) : slots, layer, microbatches);
    if (is_refilled) layer_refill(layer, microbatches);
  }

  // A layer of multi-token prediction with what is around it, without its loss.
  void count_mtp_layer(int chunk, int64_t layer) {
    const int64_t m = step_.num_microbatches;
    leave_row_parallel(m);
    if (!is_frozen(step_, "embedding.word_embeddings.weight")) enter_column_parallel(m);
    enter_column_parallel(m, parts_, 2);  // eh_proj
    if (grid_.tp > 1) add(Group::kTp, CommOp::kAllgather, hidden_bytes(), m);
    enter_column_parallel(m);  // its backward: the gradient of the result, the weight's, and the input's
    if (!is_frozen(step_, core::cat("mtp.layers.", layer - step_.model.num_layers, ".eh_proj.weight")))
      enter_column_parallel(m, 1, 2);
    leave_row_parallel(m, 1, 2);
    for (const auto& [table, microbatches] : policy_.shares(chunk)) {
      const LayerSlots slots = mtp_slots(table);
      count_layer(slots, slots.runs_again(), layer, microbatches);
    }
  }

  void count_chunk(Place place) {
    const int64_t m = step_.num_microbatches;
    for (const auto& [table, microbatches] : policy_.shares(place.chunk))
      count_layers(table, placement_.layers(place).first, microbatches);
    if (placement_.is_first(place)) {
      leave_row_parallel(m);
      if (!is_frozen(step_, "embedding.word_embeddings.weight")) enter_column_parallel(m);  // backward
    } else {
      add_messages(*placement_.before(place));
    }
    if (placement_.is_last(place)) {
      count_loss(step_.loss_chunk_size > 0);
      for (int64_t layer = step_.model.num_layers; layer < step_.model.num_layers_with_mtp(); ++layer) {
        count_mtp_layer(place.chunk, layer);
        count_loss(step_.loss_chunk_size > 0 || step_.mtp_logits_are_brief);
      }
    } else {
      add_messages(*placement_.behind(place));
    }
  }

  // To and from a neighbouring place: as many hidden states as gradients, so one of both is sent, the other received.
  void add_messages(Place neighbour) {
    if (neighbour.stage == at_.pp) return;  // where a V turns
    const int64_t bytes = hidden_bytes() / (step_.sequence_parallel ? grid_.tp : 1);
    add(Group::kPp, CommOp::kRecv, bytes, step_.num_microbatches);
    RankGrid::Coordinates to = at_;
    to.pp = neighbour.stage;
    add_sends(Group::kPp, bytes, step_.num_microbatches, grid_.rank(to));
  }
  // Messages of `bytes` each to one rank of a group.
  void add_sends(Group group, int64_t bytes, int64_t calls, int to) {
    Traffic& sends = counted_.try_emplace({group, CommOp::kSend}, Traffic{group, CommOp::kSend}).first->second;
    sends.calls += calls;
    sends.payload_bytes += calls * bytes;
    sends.ring_bytes += calls * bytes;
    if (is_remote(to)) sends.remote_bytes += calls * bytes;
  }

  // in_chunks: forward and backward of each at once.
  void count_loss(bool in_chunks) {
    const int64_t m = step_.num_microbatches, rows = step_.tokens();
    enter_column_parallel(in_chunks || output_is_frozen(step_) ? m : 2 * m);
    leave_row_parallel(m);
    if (grid_.tp == 1) return;
    const int64_t chunk = step_.loss_chunk_size > 0 ? step_.loss_chunk_size * step_.micro_batch_size : rows;
    for (int64_t begin = 0; begin < rows; begin += chunk) {  // maximum, sum of exponentials, score of the label
      add(Group::kTp, CommOp::kAllreduce, std::min(chunk, rows - begin) * int64_t{sizeof(float)}, 3 * m);
    }
  }

  // Losses, tokens and means of micro-batches, these of multi-token prediction, too, once a step.
  void count_batch_sums() {
    const int64_t sums = (3 + step_.model.mtp_num_layers) * int64_t{sizeof(double)};
    if (grid_.replicas() > 1) add(Group::kDpCp, CommOp::kAllreduce, sums);
    if (grid_.pp > 1) add(Group::kPp, CommOp::kAllreduce, sums);
  }

  void count_gradients() {
    constexpr int64_t kGradBytes = sizeof(float);
    const StageParameters stage = stage_parameters(step_, at_.pp);
    if (has_embedding_copy(step_.model, step_.layout) && !ranks_of_group(Group::kEmbedding, grid_, rank_).empty() &&
        stage.embedding_elems > 0) {
      add(Group::kEmbedding, CommOp::kAllreduce, shared_embedding_elems(stage) * kGradBytes);
    }
    const Sharding sharding = step_.layout.sharding();
    const bool distributed = sharding.state();
    const std::vector<UnitUses> uses = uses_of_buckets(step_, stage, at_.pp);
    for (size_t i = 0; i < stage.buckets.size(); ++i) {
      if (stage.partial_grad_elems[i] > 0)
        add(Group::kTp, CommOp::kAllreduce, stage.partial_grad_elems[i] * kGradBytes, uses[i].reductions);
      if (stage.buffer_elems == 0) continue;
      const BufferCut::Unit& unit = stage.cut.unit_at(stage.buckets[i].begin);
      if (unit.num_replicas == 1) continue;
      const bool has_instances = sharding.num_instances > 1 && !sharding.gradients();
      const int64_t elements = stage.buckets[i].end - stage.buckets[i].begin;
      const int64_t reduced_bytes = core::size_of(step_.reduction_dtype);
      if (distributed && !unit.whole) {
        add_block_exchange(CommOp::kReduceScatter, stage, stage.buckets[i], reduced_bytes, uses[i].reductions);
        if (has_instances)
          add(unit.instances, CommOp::kAllreduce, owned_elems(stage, stage.buckets[i], rank_) * reduced_bytes);
      } else {
        add(unit.replicas, CommOp::kAllreduce, elements * reduced_bytes);
      }
    }
    if (sharding.gradients())
      add_over_instances(stage, sharding.parts_of_state() > 1 ? CommOp::kReduceScatter : CommOp::kAllreduce,
                         kGradBytes);
    // One sum for each parameter of the model: the gradient norm, and what the log asks for.
    const int64_t sums = 1 + (step_.counts_zeros ? 1 : 0) + (step_.logs_params_norm ? 1 : 0);
    const auto bytes = static_cast<int64_t>(parameter_specs(step_.model).size() * sizeof(double));
    const bool adds_replicas = distributed || (step_.model.has_experts() && experts_apart(grid_));
    const bool sums_instance = sharding.num_instances > 1 && sharding.parts_of_state() == 1;
    const Group owners = sums_instance ? Group::kDpShard : Group::kDpCp;
    if (adds_replicas && grid_.replicas() > 1) add(owners, CommOp::kAllreduce, bytes, sums);
    if (grid_.tp * grid_.pp > 1) add(Group::kModel, CommOp::kAllreduce, bytes, sums);
    if (distributed && stage.buffer_elems > 0) count_weights(stage, uses);
  }

  // All-gathers of the new weights, with ZeRO-3 of each unit that is read.
  void count_weights(const StageParameters& stage, const std::vector<UnitUses>& uses) {
    const int64_t weight_bytes = core::size_of(step_.dtype);
    if (!step_.overlaps_param_gather && !step_.layout.sharding().gradients()) {
      for (const BufferCut::Unit& unit : stage.cut.units()) {
        const int64_t elements = unit.range.end - unit.range.begin;
        if (stage.cut.num_owners(unit) > 1 && elements > 0)
          add(unit.owners, CommOp::kAllgather, elements * weight_bytes);
      }
      return;
    }
    if (step_.layout.sharding().parts_of_state() > 1) add_over_instances(stage, CommOp::kAllgather, weight_bytes);
    for (size_t i = 0; i < stage.buckets.size(); ++i)
      add_block_exchange(CommOp::kAllgather, stage, stage.buckets[i], weight_bytes, uses[i].gathers);
  }

  // Of what this rank owns, among those that own the same.
  void add_over_instances(const StageParameters& stage, CommOp op, int64_t element_bytes) {
    if (stage.cut.sharding().num_instances == 1) return;
    for (const auto& [replicas, instances] :
         {std::pair{Group::kDpCp, Group::kDpReplica}, std::pair{Group::kExpertDp, Group::kExpertDpReplica}}) {
      const FlatRange owned = stage.cut.owned_by_instances(replicas);
      if (owned.begin < owned.end) add(instances, op, (owned.end - owned.begin) * element_bytes);
    }
  }

  int64_t owned_elems(const StageParameters& stage, FlatRange bucket, int rank) const {
    const int owner = owner_of(stage.cut.unit_at(bucket.begin), grid_, rank);
    return stage.cut.owned_counts(bucket)[static_cast<size_t>(owner)];
  }
  // A reduce-scatter or all-gather of a bucket, of which this rank has its part: what it sends is the rest.
  void add_block_exchange(CommOp op, const StageParameters& stage, FlatRange bucket, int64_t element_bytes,
                          int64_t calls) {
    const BufferCut::Unit& unit = stage.cut.unit_at(bucket.begin);
    if (calls == 0 || stage.cut.num_owners(unit) == 1) return;
    const int64_t elements = bucket.end - bucket.begin;
    const int64_t own = owned_elems(stage, bucket, rank_);
    Traffic& traffic = counted_.try_emplace({unit.owners, op}, Traffic{unit.owners, op}).first->second;
    traffic.calls += calls;
    traffic.payload_bytes += calls * elements * element_bytes;
    traffic.ring_bytes += calls * (elements - own) * element_bytes;
    const std::vector<int> ranks = ranks_of_group(unit.owners, grid_, rank_);
    std::vector<int> others = ranks;
    if (const auto levels = levels_of(ranks)) {
      others.clear();
      for (const int member : levels->across) others.push_back(ranks[static_cast<size_t>(member)]);
    }
    for (const int other : others) {
      if (!is_remote(other)) continue;
      const int64_t sent = op == CommOp::kReduceScatter ? owned_elems(stage, bucket, other) : own;
      traffic.remote_bytes += calls * sent * element_bytes;
    }
  }

  const TrainingStep& step_;
  int rank_, ranks_per_node_;
  RankGrid grid_;
  RankGrid::Coordinates at_;
  Placement placement_;
  SlotPolicy policy_;
  int64_t parts_;  // of a layer's products
  std::map<std::pair<Group, CommOp>, Traffic> counted_;
};

}  // namespace

std::vector<Traffic> step_traffic(const TrainingStep& step, int rank, int ranks_per_node) {
  return Counting(step, rank, ranks_per_node).count();
}

}  // namespace ms::layout
