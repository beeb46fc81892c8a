#include "core/layout/formulas/memory.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/layout/formulas/communication_buffers.h"
#include "core/layout/formulas/expert_replay.h"
#include "core/layout/formulas/layer_replay.h"
#include "core/layout/formulas/loss_replay.h"
#include "core/layout/formulas/rounds.h"
#include "core/layout/formulas/workspaces.h"
#include "core/layout/interleave.h"
#include "core/layout/schedule.h"
#include "core/layout/slot_policy.h"
#include "core/layout/state_chunks.h"

namespace ms::layout {
namespace {

SwappedBytes bytes_on_tier(const SwapPlan& swap, const LayerBytes& bytes, const LayerSlots& slots) {
  SwappedBytes sum;
  for (const SavedSlotProperties& of : kSavedSlots) {
    if (slots[of.slot] == SlotDecision::kSwap) sum += swap.moved({bytes.of(of.slot, slots)});
  }
  return sum;
}

constexpr int64_t kFp32 = sizeof(float);

// Allocations of a stage in the order of train/model: what a function there allocates is added here, what it frees or
// hands on is dropped. Sizes are bytes of one micro-batch on one tensor-parallel rank.
class Replay {
 public:
  Replay(const TrainingStep& step, int stage)
      : step_(step),
        model_(step.model),
        stage_(stage),
        placement_(placement_of(step.model, step.layout)),
        tp_(step.layout.tensor_model_parallel_size),
        tokens_travel_(step.layout.ranks_of_experts() > 1),
        with_experts_(step.model.layers_with_experts()),
        actions_(
            schedule_training(step.schedule, stage, placement_.stages(), placement_.chunks(), step.num_microbatches)),
        policy_(step, stage, actions_),
        weights_wait_(weights_wait(actions_, placement_.chunks(), step.num_microbatches)),
        operands_of_chunk_(static_cast<size_t>(placement_.chunks())) {
    const int ep = step.layout.ranks_of_experts();
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk) {
      const Place place{stage, chunk};
      forwards_.push_back(chunk_steps(model_, placement_.layers(place), tp_, ep));
      backwards_.push_back(backward_chunk_steps(model_, placement_.layers(place), tp_, ep));
    }
    const int chunks = placement_.chunks();
    for (int pair = 0; step.schedule.pairs && pair < chunks * chunks; ++pair)
      pairs_.push_back(pair_steps(model_, placement_, tp_, {stage, pair / chunks}, {stage, pair % chunks}, ep));
  }

  void run() {
    for (size_t i = 0; i < actions_.size(); ++i) {
      const bool is_pair = step_.schedule.pairs && begins_pair(placement_.order(), actions_, i);
      prepare(i, is_pair ? 2 : 1);
      if (is_pair) {
        pair(actions_[i], actions_[i + 1]);
        ++i;
      } else {
        run(actions_[i]);
      }
    }
  }
  int64_t peak() const { return held_.peak(); }
  int64_t tier_peak() const { return tier_.peak(); }
  const SwappedBytes& all_swapped() const { return all_swapped_; }

 private:
  // A micro-batch on its way through a chunk.
  struct Way {
    const ScheduleAction& action;
    Place place;
    const SlotTable& slots;
    bool has_begun = false;
    int64_t complete = slots.layers();  // of a backward: layers below are dropped
    LayerSlots of_layer = {};           // of the layer that a backward is in
  };
  Way way_of(const ScheduleAction& action) const { return {action, {stage_, action.chunk}, policy_.of(action)}; }

  // Before `count` actions from the i-th on.
  void prepare(size_t i, size_t count) {
    const bool posts_early = placement_.chunks() > 1 && step_.posts_receives_early;
    settle_operands();
    for (size_t own = i; own < i + count; ++own) {
      if (begins_backward(actions_[own])) prepare_backward(actions_[own]);
    }
    const size_t next = i + count;
    if (next < actions_.size() && operands_leave(actions_[next], ScheduleAction::kBackwardWeight))
      prefetch_operands(actions_[next], 0, kLinearsOfLayer);
    for (size_t own = i; own < i + count; ++own) {
      if (!posts_early || own == 0) receive(actions_[own]);
      if (posts_early && own + 1 < actions_.size()) receive(actions_[own + 1]);
    }
  }

  void run(const ScheduleAction& action) {
    Way way = way_of(action);
    switch (action.kind) {
      case ScheduleAction::kForward:
        for (const ChunkStep& step : forwards_[static_cast<size_t>(action.chunk)]) forward(way, step);
        return;
      case ScheduleAction::kBackward:
      case ScheduleAction::kBackwardInput:
        begin_backward(action);
        for (const ChunkStep& step : backwards_[static_cast<size_t>(action.chunk)]) backward(way, step);
        return;
      case ScheduleAction::kBackwardWeight:
        if (operands_leave(action, ScheduleAction::kBackwardWeight)) return weight_gradients_from_tier(action);
        held_.add(bytes().gathered);
        return held_.drop(bytes().gathered + operands_of_chunk_[static_cast<size_t>(action.chunk)]);
      case ScheduleAction::kRecompute:
        return recompute_chunk(action);
    }
  }
  void begin_backward(const ScheduleAction& action) {
    layer_.begin_backward(action.kind == ScheduleAction::kBackwardInput);
    experts_.begin_backward(action.kind == ScheduleAction::kBackwardInput);
  }
  void pair(const ScheduleAction& forward_action, const ScheduleAction& backward_action) {
    Way ahead = way_of(forward_action), back = way_of(backward_action);
    begin_backward(backward_action);
    const int of_chunks = forward_action.chunk * placement_.chunks() + backward_action.chunk;
    for (const PairStep& step : pairs_[static_cast<size_t>(of_chunks)])
      step.is_forward ? forward(ahead, step.of_chunk) : backward(back, step.of_chunk);
  }

  const LayerBytes& bytes() const { return layer_.bytes(); }
  bool is_of_another_stage(std::optional<Place> place) const { return place && place->stage != stage_; }
  void receive(const ScheduleAction& action) {
    if (is_of_another_stage(source_of(placement_, stage_, action))) held_.add(bytes().shard);
  }
  // A sent tensor is kept until the next one is sent; one for another chunk of this stage until that takes it.
  void hand_on(const ScheduleAction& action) {
    if (!is_of_another_stage(target_of(placement_, stage_, action))) return;
    held_.drop(sent_);
    sent_ = bytes().shard;
  }

  // Operands of a layer's gradients of weights, in the order of WeightGradients: input and output gradient of
  // linear_fc2, linear_fc1, linear_proj and linear_qkv.
  std::pair<int64_t, int64_t> operands(size_t linear) const {
    const std::pair<int64_t, int64_t> of_layer[kLinearsOfLayer] = {{bytes().product, bytes().hidden},
                                                                   {bytes().shard, bytes().fc1},
                                                                   {bytes().out, bytes().hidden},
                                                                   {bytes().shard, bytes().packed}};
    return of_layer[linear % kLinearsOfLayer];
  }
  SwappedBytes moved_operands(size_t linear) const {
    const auto [x, dy] = operands(linear);
    return step_.swap.moved({x, dy});
  }
  size_t linears_of(const ScheduleAction& action) const {
    return kLinearsOfLayer * static_cast<size_t>(placement_.layers({stage_, action.chunk}).count);
  }
  bool operands_leave(const ScheduleAction& action, ScheduleAction::Kind kind) const {
    return step_.swap.operands && action.kind == kind &&
           weights_wait_[static_cast<size_t>(action.microbatch * placement_.chunks() + action.chunk)];
  }
  void settle_operands() { held_.drop(std::exchange(leaving_operands_, 0)); }
  void swap_out_operands() {  // of a layer whose backward has ended
    settle_operands();
    for (size_t linear = 0; linear < kLinearsOfLayer; ++linear) {
      const SwappedBytes swapped = moved_operands(linear);
      leaving_operands_ += swapped.of_memory;
      tier_.add(swapped.of_tier);
      all_swapped_ += swapped;
    }
  }
  void prefetch_operands(const ScheduleAction& action, size_t first, size_t end) {
    for (size_t linear = first; linear < std::min(end, linears_of(action)); ++linear)
      held_.add(moved_operands(linear).of_memory);
  }
  void weight_gradients_from_tier(const ScheduleAction& action) {
    for (size_t linear = 0; linear < linears_of(action); ++linear) {
      if (linear > 0) prefetch_operands(action, linear + kLinearsOfLayer - 1, linear + kLinearsOfLayer);
      tier_.drop(moved_operands(linear).of_tier);
      held_.add(bytes().gathered);
      held_.drop(bytes().gathered);
      held_.drop(operands(linear).first + operands(linear).second);
    }
  }

  // Between the forward of a chunk's layer and its backward.
  SwappedBytes swapped(Place place, int64_t layer, const LayerSlots& slots) {
    if (!step_.swap.activations()) return {};
    return bytes_on_tier(step_.swap, layer_.bytes_of(number_of(place, layer)), slots);
  }
  void settle() { held_.drop(std::exchange(leaving_, 0)); }
  void swap_out(const Way& way, int64_t layer) {
    const SwappedBytes moved = swapped(way.place, layer, way.slots[layer]);
    leaving_ = moved.of_memory;
    tier_.add(moved.of_tier);
    all_swapped_ += moved;
  }
  void prefetch(Place place, const SlotTable& slots, int64_t layer) {
    if (layer >= 0) held_.add(swapped(place, layer, slots[layer]).of_memory);
  }
  void swap_in(const Way& way, int64_t layer) { tier_.drop(swapped(way.place, layer, way.slots[layer]).of_tier); }
  void prepare_backward(const ScheduleAction& action) {
    settle();
    const SlotTable& slots = policy_.of(action);
    prefetch({stage_, action.chunk}, slots, slots.layers() - 1);
  }

  void forward(Way& way, const ChunkStep& step) {
    if (!std::exchange(way.has_begun, true) && placement_.is_first(way.place)) {  // the embedding
      held_.add(bytes().hidden);
      layer_.leave_row_parallel();
    }
    switch (step.step) {
      case SubStep::kAttention:
        if (step.layer > 0) end_layer(way, step.layer - 1);
        return layer_at(way.place, step.layer).start_attention(way.slots[step.layer]);
      case SubStep::kMlp:
        layer_.finish_block();
        return layer_.start_mlp(way.slots[step.layer]);
      case SubStep::kDispatch:
        layer_.finish_block();
        return experts_.dispatch();
      case SubStep::kExperts:
        if (tokens_travel_) return experts_.run_experts(way.slots[step.layer]);
        layer_.finish_block();
        experts_.dispatch();
        experts_.run_experts(way.slots[step.layer]);
        return experts_.combine();
      case SubStep::kCombine:
        return experts_.combine();
      case SubStep::kAttentionReduce:
      case SubStep::kMlpReduce:
        return layer_.start_sum();
      case SubStep::kResult:
        if (way.slots.layers() > 0) end_layer(way, way.slots.layers() - 1);
        return placement_.is_last(way.place) ? loss_.forward(mtp_slots(way.slots)) : hand_on(way.action);
    }
  }
  void end_layer(const Way& way, int64_t layer) {
    has_experts(way.place, layer) ? experts_.finish(way.slots[layer]) : layer_.finish_block();
    settle();
    layer_.drop(way.slots[layer], layer_.bytes_of(number_of(way.place, layer), has_experts(way.place, layer)));
    swap_out(way, layer);
  }
  int64_t number_of(Place place, int64_t layer) const { return placement_.layers(place).first + layer; }  // global
  bool has_experts(Place place, int64_t layer) const {
    return with_experts_[static_cast<size_t>(number_of(place, layer))];
  }
  LayerReplay& layer_at(Place place, int64_t layer) {
    layer_.set_layer(number_of(place, layer));
    return layer_;
  }
  void layer_forward(Place place, int64_t layer, const LayerSlots& slots) {
    layer_at(place, layer).attention(slots);
    if (!has_experts(place, layer)) return layer_.mlp(slots);
    experts_.start(slots);
  }
  void layer_refill(Place place, int64_t layer, const LayerSlots& slots) {
    layer_at(place, layer).attention(slots);
    has_experts(place, layer) ? experts_.refill(slots) : layer_.refill_mlp(slots);
  }
  // Each layer of the chunk that was dropped; it has kept its input.
  void recompute_chunk(const ScheduleAction& action) {
    const Place place{stage_, action.chunk};
    const SlotTable& slots = policy_.of(action);
    for (int64_t layer = 0; layer < slots.layers(); ++layer) {
      if (slots[layer].runs_again()) layer_refill(place, layer, slots[layer]);
    }
  }

  void backward(Way& way, const ChunkStep& step) {
    if (!std::exchange(way.has_begun, true) && placement_.is_last(way.place))
      loss_backward(way);  // else the gradient was received
    switch (step.step) {
      case SubStep::kMlp:
        begin_layer_backward(way, step.layer);
        return layer_.start_mlp_backward(way.of_layer);
      case SubStep::kCombine:
        begin_layer_backward(way, step.layer);
        return experts_.combine_backward(way.of_layer);
      case SubStep::kExperts:
        if (tokens_travel_) return experts_.run_experts_backward(way.of_layer);
        begin_layer_backward(way, step.layer);
        experts_.combine_backward(way.of_layer);
        experts_.run_experts_backward(way.of_layer);
        return experts_.dispatch_backward(way.of_layer);
      case SubStep::kDispatch:
        return experts_.dispatch_backward(way.of_layer);
      case SubStep::kAttention:
        has_experts(way.place, step.layer) ? experts_.finish_backward(way.of_layer) : layer_.finish_mlp_backward();
        return layer_at(way.place, step.layer).start_attention_backward(way.slots[step.layer]);
      case SubStep::kAttentionReduce:
        if (model_.multi_latent_attention) return;  // nothing is left to sum
        return layer_.start_backward_sum();
      case SubStep::kMlpReduce:
        return layer_.start_backward_sum();
      case SubStep::kResult:
        if (way.slots.layers() > 0) end_layer_backward(way);
        return end_backward(way);
    }
  }
  void begin_layer_backward(Way& way, int64_t layer) {
    if (layer + 1 < way.slots.layers()) end_layer_backward(way);
    const LayerSlots& slots = way.slots[layer];
    swap_in(way, layer);
    prefetch(way.place, way.slots, layer - 1);
    bool is_refilled = slots.runs_again();  // by an action of its own (recompute_chunk)
    if (is_refilled && step_.schedule.recompute == RecomputeTime::kAtBackward) {
      is_refilled = layer < way.complete;
      if (is_refilled) {
        way.complete = way.slots.group_begin(layer);
        for (int64_t again = way.complete; again < layer; ++again) layer_forward(way.place, again, way.slots[again]);
        layer_refill(way.place, layer, slots);
      }
    }
    way.of_layer = is_refilled ? slots.refilled(model_.post_norm) : slots;
  }
  void end_layer_backward(const Way& way) {
    layer_.finish_attention_backward();
    if (operands_leave(way.action, ScheduleAction::kBackwardInput)) swap_out_operands();
  }
  void end_backward(const Way& way) {
    if (way.action.kind == ScheduleAction::kBackwardInput)
      operands_of_chunk_[static_cast<size_t>(way.action.chunk)] = layer_.operands() + experts_.operands();
    if (!placement_.is_first(way.place)) return hand_on(way.action);
    held_.add(bytes().gathered);
    held_.drop(bytes().gathered + bytes().shard);
  }

  void loss_backward(const Way& way) {
    const bool deferred = way.action.microbatch >= step_.num_microbatches - step_.deferred_output_gradients;
    loss_.backward(mtp_slots(way.slots), deferred, way.action.kind == ScheduleAction::kBackwardInput);
  }

  const TrainingStep& step_;
  const core::TransformerConfig& model_;
  int stage_;
  Placement placement_;
  int tp_;
  bool tokens_travel_;              // to experts of other ranks
  std::vector<bool> with_experts_;  // of each layer of the model
  std::vector<ScheduleAction> actions_;
  SlotPolicy policy_;
  std::vector<bool> weights_wait_;  // of each micro-batch and chunk
  // Of each chunk; pairs: of a forward through one and a backward through one, as StepRunner has them.
  std::vector<std::vector<ChunkStep>> forwards_, backwards_;
  std::vector<std::vector<PairStep>> pairs_;
  int64_t sent_ = 0;
  std::vector<int64_t> operands_of_chunk_;  // of one micro-batch: what a backward has left for its second part
  int64_t leaving_operands_ = 0;            // the same of a layer, on the way to the tier
  int64_t leaving_ = 0;                     // of activations, the same; still in memory
  SwappedBytes all_swapped_;                // of the step
  HeldBytes held_, tier_;
  LayerReplay layer_{step_, held_};
  ExpertReplay experts_{step_, held_};
  LossReplay loss_{step_, layer_, experts_, held_};
};

// Of a rank: all that it owns and, from ZeRO-2 on, those that have not been reduced.
int64_t gradient_elems(const BufferCut& cut) {
  return cut.sharding().gradients() ? cut.owned_size() + unit_slots(cut) * cut.largest_unit() : cut.size();
}
// The same of weights that train, from ZeRO-3 on.
int64_t weight_elems(const BufferCut& cut) {
  return cut.sharding().weights() ? cut.owned_size() + unit_slots(cut) * cut.largest_unit() : cut.size();
}

// Bytes of master weights of an element.
int64_t master_bytes(const TrainingStep& step) {
  return step.reuse_fp32_param ? 2 : step.dtype == core::DType::kFp32 ? 0 : kFp32;
}
// What is replayed of a stage.
struct Replayed {
  int64_t act = 0, tier = 0;  // peaks
  SwappedBytes swapped;       // of the step
};
Replayed replayed(const TrainingStep& step, int stage) {
  Replay replay(step, stage);
  replay.run();
  Replayed result{replay.peak(), replay.tier_peak(), replay.all_swapped()};
  for (const TrainingStep& fullest : fullest_steps(step)) {
    Replay of_longest(fullest, stage);
    of_longest.run();
    result.act = std::max(result.act, of_longest.peak());
    result.tier = std::max(result.tier, of_longest.tier_peak());
  }
  return result;
}

int64_t elements_with_state(const TrainingStep& step, int rank) {
  return stage_parameters(step, step.layout.grid().coordinates(rank).pp).cut.state_size();
}

}  // namespace

SwappedBytes swapped_bytes_of_layer(const TrainingStep& step, const LayerSlots& slots) {
  return bytes_on_tier(step.swap, LayerBytes(step, step.context_algorithm), slots);
}

SwappedBytes swapped_state(const TrainingStep& step, int rank) {
  if (!step.swap.optimizer()) return {};
  const auto num_states = static_cast<int64_t>(step.optimizer_state.size()) + (master_bytes(step) > 0 ? 1 : 0);
  return StateChunks(elements_with_state(step, rank), step.swap.optimizer_times).moved(num_states);
}

int64_t activation_bytes(const TrainingStep& step, int stage) { return replayed(step, stage).act; }

StepMemory lasting_memory(const TrainingStep& step, int rank) {
  const int stage = step.layout.grid().coordinates(rank).pp;
  const StageParameters held = stage_parameters(step, stage);
  int64_t with_state = held.cut.state_size();
  if (step.swap.optimizer()) with_state = StateChunks(with_state, step.swap.optimizer_times).elements_in_memory();
  return {.param = (weight_elems(held.cut) + held.frozen_elems) * core::size_of(step.dtype) +
                   kFp32 * held.model_buffer_elems,
          .grad = kFp32 * (gradient_elems(held.cut) + held.tied_row_elems),
          .master = master_bytes(step) * with_state,
          .optim = static_cast<int64_t>(step.optimizer_state.size()) * kFp32 * with_state,
          .comm = communication_buffer_bytes(step, rank),
          .tmp = rotary_table_bytes(step) + attention_workspace_bytes(step, stage)};
}

StepMemory step_memory(const TrainingStep& step, int rank) {
  const Replayed of_stage = replayed(step, step.layout.grid().coordinates(rank).pp);
  StepMemory memory = lasting_memory(step, rank);
  memory.act = of_stage.act;
  SwappedBytes swapped = swapped_state(step, rank);
  memory.tier = swapped.of_tier + of_stage.tier;
  swapped += of_stage.swapped;
  memory.swapped = swapped.of_tier;
  memory.swapped_tensors = swapped.tensors;
  return memory;
}

}  // namespace ms::layout
