#include "core/layout/formulas/memory.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/layout/formulas/communication_buffers.h"
#include "core/layout/schedule.h"

namespace ms::layout {
namespace {

constexpr int64_t kFp32 = sizeof(float);

// Bytes that are held, and the most that ever were.
class Held {
 public:
  void add(int64_t bytes) { peak_ = std::max(peak_, now_ += bytes); }
  void drop(int64_t bytes) { now_ -= bytes; }
  int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0, peak_ = 0;
};

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
        operands_of_chunk_(static_cast<size_t>(placement_.chunks())) {
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk) plans_.push_back(step.recompute.of_place({stage, chunk}));
    const int64_t element = core::size_of(step.dtype), tokens = step.tokens();
    hidden_ = tokens * model_.hidden_size * element;
    shard_ = step.sequence_parallel ? hidden_ / tp_ : hidden_;
    query_ = tokens * model_.num_attention_heads / tp_ * model_.kv_channels * element;
    key_ = tokens * model_.query_groups() / tp_ * model_.kv_channels * element;
    lse_ = tokens * model_.num_attention_heads / tp_ * kFp32;
    product_ = tokens * model_.ffn_hidden_size / tp_ * element;
    fc1_ = tokens * model_.fc1_rows() / tp_ * element;
    const int64_t moments = model_.has_layer_norm() ? 2 : 1;
    statistics_ = moments * tokens / (step.sequence_parallel ? tp_ : 1) * kFp32;
    const int64_t normed_heads = model_.qk_layernorm_all_heads ? 2 : model_.num_attention_heads + model_.query_groups();
    head_statistics_ = model_.qk_layernorm ? moments * tokens * normed_heads / tp_ * kFp32 : 0;
  }

  void run() {
    actions_ =
        schedule_training(step_.schedule, stage_, placement_.stages(), placement_.chunks(), step_.num_microbatches);
    dropped_ = dropped_chunks(step_.schedule, actions_, placement_.chunks(), step_.num_microbatches);
    turns_around_ = turn_around(actions_, placement_.chunks(), step_.num_microbatches);
    weights_wait_ = weights_wait(actions_, placement_.chunks(), step_.num_microbatches);
    const bool posts_early = placement_.chunks() > 1 && step_.posts_receives_early;
    for (size_t i = 0; i < actions_.size(); ++i) {
      plan_ = &plans_[static_cast<size_t>(actions_[i].chunk)];
      settle_operands();
      if (begins_backward(actions_[i])) prepare_backward(actions_[i]);
      if (i + 1 < actions_.size() && operands_leave(actions_[i + 1], ScheduleAction::kBackwardWeight))
        prefetch_operands(actions_[i + 1], 0, kLinearsOfLayer);
      if (!posts_early || i == 0) receive(actions_[i]);
      if (posts_early && i + 1 < actions_.size()) receive(actions_[i + 1]);
      run(actions_[i]);
    }
  }
  int64_t peak() const { return held_.peak(); }
  int64_t tier_peak() const { return tier_.peak(); }
  int64_t swapped_bytes() const { return swapped_bytes_; }

 private:
  int64_t gathered() const { return step_.sequence_parallel ? hidden_ : 0; }

  void run(const ScheduleAction& action) {
    deferred_ = action.kind == ScheduleAction::kBackwardInput;
    switch (action.kind) {
      case ScheduleAction::kForward:
        return forward(action);
      case ScheduleAction::kBackward:
      case ScheduleAction::kBackwardInput:
        operands_ = 0;
        backward(action);
        if (deferred_) operands_of_chunk_[static_cast<size_t>(action.chunk)] = operands_;
        return;
      case ScheduleAction::kBackwardWeight:
        if (operands_leave(action, ScheduleAction::kBackwardWeight)) return weight_gradients_from_tier(action);
        held_.add(gathered());
        return held_.drop(gathered() + operands_of_chunk_[static_cast<size_t>(action.chunk)]);
      case ScheduleAction::kRecompute:
        return recompute_chunk(action);
    }
  }

  bool is_of_another_stage(std::optional<Place> place) const { return place && place->stage != stage_; }
  void receive(const ScheduleAction& action) {
    if (is_of_another_stage(source_of(placement_, stage_, action))) held_.add(shard_);
  }
  // A sent tensor is kept until the next one is sent; one for another chunk of this stage until that takes it.
  void hand_on(const ScheduleAction& action) {
    if (!is_of_another_stage(target_of(placement_, stage_, action))) return;
    held_.drop(sent_);
    sent_ = shard_;
  }
  // An operand of a weight's gradient, which has been computed, or is deferred.
  void drop_operand(int64_t bytes) {
    if (deferred_) {
      operands_ += bytes;
    } else {
      held_.drop(bytes);
    }
  }
  // The gather of a column-parallel layer's input for its weight's gradient, and the end of that input.
  void column_parallel_weight() {
    if (!deferred_) {
      held_.add(gathered());
      held_.drop(gathered());
    }
    drop_operand(shard_);
  }
  // The gradient of a block's output is an operand, too, unless it is gathered or comes from a norm.
  bool keeps_output_gradient() const { return deferred_ && !step_.sequence_parallel && !model_.post_norm; }
  // The gradient behind a norm at the end of a block; gathered, it is not the operand itself.
  void drop_branch_gradient() {
    if (!model_.post_norm) return;
    if (step_.sequence_parallel) return held_.drop(shard_);
    drop_operand(shard_);
  }

  // The full sum of a row-parallel product is held; afterwards this rank's part of it.
  void leave_row_parallel() {
    if (!step_.sequence_parallel) return;
    held_.add(shard_);
    held_.drop(hidden_);
  }
  void row_parallel_linear() {
    held_.add(hidden_);
    leave_row_parallel();
  }
  void post_norm() {  // its input is kept
    if (model_.post_norm) held_.add(shard_ + statistics_);
  }

  // Output: one shard, held.
  void attention_forward(const RecomputedOutputs& recomputed) {
    const int64_t packed = query_ + 2 * key_;
    held_.add(shard_ + statistics_);  // normed
    held_.add(gathered());
    held_.add(packed);
    held_.drop(gathered());
    if (recomputed.norms) held_.drop(shard_);
    held_.add(packed);  // q, k, v
    held_.drop(packed);
    if (model_.qk_layernorm) held_.add(query_ + key_ + head_statistics_);
    held_.add(query_ + lse_);  // out
    row_parallel_linear();
    post_norm();
  }
  int64_t attention_kept(const RecomputedOutputs& recomputed) const {
    return (recomputed.norms ? 0 : shard_) + statistics_ + 2 * query_ + 2 * key_ + lse_ +
           (model_.qk_layernorm ? query_ + key_ + head_statistics_ : 0) + (model_.post_norm ? shard_ + statistics_ : 0);
  }

  void fill_fc1() {
    held_.add(gathered());
    held_.add(fc1_);
    held_.drop(gathered());
  }
  // Output: one shard, held.
  void mlp_forward(const RecomputedOutputs& recomputed) {
    held_.add(shard_ + statistics_);
    fill_fc1();
    if (recomputed.norms || recomputed.mlp) held_.drop(shard_);
    held_.add(product_);
    if (recomputed.mlp) held_.drop(fc1_);
    row_parallel_linear();
    if (recomputed.activation || recomputed.mlp) held_.drop(product_);
    post_norm();
  }
  // Mlp::refill: as much as the backward reads.
  void mlp_refill() {
    if (model_.post_norm) {
      mlp_forward({});
      held_.drop(shard_);  // its output
      return;
    }
    held_.add(shard_ + statistics_);
    fill_fc1();
  }

  // `has_product`: the activation's result was kept. The gradient of the output is held, and stays.
  void mlp_backward(const RecomputedOutputs& recomputed, bool has_product) {
    if (model_.post_norm) held_.add(shard_);  // gradient behind the norm
    if (recomputed.mlp) {
      held_.add(shard_);
      fill_fc1();
    }
    if (!has_product) held_.add(product_);
    held_.add(gathered());
    drop_operand(product_);
    held_.add(product_);  // its gradient
    drop_operand(gathered());
    drop_branch_gradient();
    held_.drop(product_);  // fc1's gradient is written where fc1 was
    if (recomputed.norms && !recomputed.mlp) held_.add(shard_);
    column_parallel_weight();
    held_.add(hidden_);
    drop_operand(fc1_);
    leave_row_parallel();
    held_.add(shard_);  // gradient of the input
    held_.drop(shard_);
    held_.drop(shard_ + statistics_);  // input, statistics
    if (model_.post_norm) held_.drop(shard_ + statistics_);
  }

  void attention_backward(const RecomputedOutputs& recomputed) {
    const int64_t packed = query_ + 2 * key_;
    if (model_.post_norm) held_.add(shard_);
    held_.add(gathered());
    held_.add(query_);  // gradient of the context
    drop_operand(gathered());
    drop_branch_gradient();
    held_.add(packed);  // dq, dk, dv
    held_.drop(query_ + packed + lse_);
    drop_operand(query_);
    if (model_.qk_layernorm) {
      held_.add(query_);
      held_.drop(query_);
      held_.add(key_);
      held_.drop(key_);
    }
    held_.add(packed);
    held_.drop(packed);
    if (recomputed.norms) held_.add(shard_);
    column_parallel_weight();
    held_.add(hidden_);
    drop_operand(packed);
    leave_row_parallel();
    held_.add(shard_);
    held_.drop(shard_);
    held_.drop(shard_ + statistics_);  // the layer's input
    if (model_.qk_layernorm) held_.drop(query_ + key_ + head_statistics_);
    if (model_.post_norm) held_.drop(shard_ + statistics_);
  }

  // What a layer keeps besides its input, which is held already; its output is held in addition.
  void layer_forward(const RecomputedOutputs& recomputed) {
    attention_forward(recomputed);
    mlp_forward(recomputed);
  }
  int64_t layer_kept(const RecomputedOutputs& recomputed) const {
    const int64_t mlp = (recomputed.norms || recomputed.mlp ? 0 : shard_) + statistics_ + (recomputed.mlp ? 0 : fc1_) +
                        (recomputed.activation || recomputed.mlp ? 0 : product_) +
                        (model_.post_norm ? shard_ + statistics_ : 0);
    return attention_kept(recomputed) + shard_ + mlp;  // with the MLP's input
  }

  // Operands of a layer's gradients of weights, in the order of WeightGradients: input and output gradient of
  // linear_fc2, linear_fc1, linear_proj and linear_qkv.
  std::pair<int64_t, int64_t> operands(size_t linear) const {
    const std::pair<int64_t, int64_t> of_layer[kLinearsOfLayer] = {
        {product_, hidden_}, {shard_, fc1_}, {query_, hidden_}, {shard_, query_ + 2 * key_}};
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
      swapped_bytes_ += swapped.of_tier;
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
      held_.add(gathered());
      held_.drop(gathered());
      held_.drop(operands(linear).first + operands(linear).second);
    }
  }

  // Tensors that a swap moves, one by one (train/memory/activation_swap.h).
  SwappedBytes swapped(int64_t layer) const {
    const RecomputedOutputs recomputed = plan_->recomputed_outputs(layer);
    const SwapPlan& swap = step_.swap;
    SwappedBytes sum;
    if (swap.input_norm && !recomputed.norms) sum += swap.moved({shard_});
    if (swap.self_attention) sum += swap.moved({query_, key_, key_, query_, lse_});
    if (swap.self_attention && model_.qk_layernorm) sum += swap.moved({query_, key_});
    if (swap.post_attention_norm && !recomputed.norms && !recomputed.mlp) sum += swap.moved({shard_});
    return sum;
  }
  // Whether the layer's tensors are on the tier between its forward and its backward.
  bool leaves(const ScheduleAction& action, int64_t layer) const {
    if (!step_.swap.activations() || drops_layer(action, layer)) return false;
    const bool is_last = layer + 1 == placement_.layers({stage_, action.chunk}).count;
    return !is_last || !turns_around_[static_cast<size_t>(action.microbatch * placement_.chunks() + action.chunk)];
  }
  void settle() { held_.drop(std::exchange(leaving_, 0)); }
  void swap_out(int64_t layer) {
    const SwappedBytes moved = swapped(layer);
    leaving_ = moved.of_memory;
    tier_.add(moved.of_tier);
    swapped_bytes_ += moved.of_tier;
  }
  void prefetch(const ScheduleAction& action, int64_t layer) {
    if (layer >= 0 && leaves(action, layer)) held_.add(swapped(layer).of_memory);
  }
  void swap_in(const ScheduleAction& action, int64_t layer) {
    if (leaves(action, layer)) tier_.drop(swapped(layer).of_tier);
  }
  void prepare_backward(const ScheduleAction& action) {
    settle();
    prefetch(action, placement_.layers({stage_, action.chunk}).count - 1);
  }

  void forward(const ScheduleAction& action) {
    const Place place{stage_, action.chunk};
    if (placement_.is_first(place)) row_parallel_linear();  // the embedding
    for (int64_t layer = 0; layer < placement_.layers(place).count; ++layer) {
      layer_forward(plan_->recomputed_outputs(layer));
      settle();
      if (leaves(action, layer)) swap_out(layer);
      if (!drops_layer(action, layer)) continue;
      held_.drop(layer_kept(plan_->recomputed_outputs(layer)));
      if (plan_->group_begin(layer) != layer) held_.drop(shard_);
    }
    if (!placement_.is_last(place)) return hand_on(action);
    held_.add(shard_ + statistics_);
    held_.add(gathered());
    const int64_t logits = rows_of_logits() * vocabulary() * kFp32;
    held_.add(logits);
    if (step_.loss_chunk_size > 0) {
      logits_backward(logits, /*deferred=*/false);
      held_.drop(rows_of_logits() * model_.hidden_size * core::size_of(step_.dtype));
      held_.drop(step_.sequence_parallel ? shard_ : 0);  // of gathered and normed the gradient stays in one
    } else {
      held_.drop(gathered());
    }
  }
  int64_t rows_of_logits() const {
    const int64_t chunk = step_.loss_chunk_size * step_.micro_batch_size;
    return chunk > 0 ? std::min(chunk, step_.tokens()) : step_.tokens();
  }
  int64_t vocabulary() const { return model_.padded_vocab_size(tp_) / tp_; }

  // The logits become their gradient, of that the gradient of the rows. deferred: it stays for the output layer's.
  void logits_backward(int64_t logits, bool deferred) {
    if (model_.output_logit_softcapping > 0) {
      held_.add(logits);
      held_.drop(logits);
    }
    int64_t gradient = logits;
    if (step_.dtype != core::DType::kFp32) {
      gradient = logits / kFp32 * core::size_of(step_.dtype);
      held_.add(gradient);
      held_.drop(logits);
    }
    held_.add(rows_of_logits() * model_.hidden_size * core::size_of(step_.dtype));
    if (!deferred) held_.drop(gradient);
  }

  bool drops_layer(const ScheduleAction& action, int64_t layer) const {
    return plan_->recomputes(layer) &&
           dropped_[static_cast<size_t>(action.microbatch * placement_.chunks() + action.chunk)];
  }
  // Each layer of the chunk that was dropped; it has kept its input.
  void recompute_chunk(const ScheduleAction& action) {
    for (int64_t layer = 0; layer < placement_.layers({stage_, action.chunk}).count; ++layer) {
      if (!plan_->recomputes(layer)) continue;
      attention_forward(plan_->recomputed_outputs(layer));
      mlp_refill();
    }
  }

  void backward(const ScheduleAction& action) {
    const Place place{stage_, action.chunk};
    if (placement_.is_last(place)) loss_backward(action);  // else the gradient was received
    const int64_t layers = placement_.layers(place).count;
    int64_t complete = layers;  // layers below are dropped
    for (int64_t layer = layers - 1; layer >= 0; --layer) {
      swap_in(action, layer);
      prefetch(action, layer - 1);
      const RecomputedOutputs recomputed = plan_->recomputed_outputs(layer);
      bool has_product = !recomputed.activation && !recomputed.mlp;
      const bool was_dropped = drops_layer(action, layer);
      // An action of its own has run the layer again (recompute_chunk).
      if (was_dropped && step_.schedule.recompute != RecomputeTime::kAtBackward) has_product = model_.post_norm;
      if (was_dropped && step_.schedule.recompute == RecomputeTime::kAtBackward && layer < complete) {
        complete = plan_->group_begin(layer);
        for (int64_t again = complete; again < layer; ++again) layer_forward(plan_->recomputed_outputs(again));
        attention_forward(recomputed);
        mlp_refill();
        has_product = model_.post_norm;
      }
      mlp_backward(recomputed, has_product);
      attention_backward(recomputed);
      // Gradients of the output, and of what is between attention and MLP.
      if (keeps_output_gradient()) operands_ += 2 * shard_;
      if (!keeps_output_gradient()) held_.drop(2 * shard_);
      if (operands_leave(action, ScheduleAction::kBackwardInput)) swap_out_operands();
    }
    if (!placement_.is_first(place)) return hand_on(action);
    held_.add(gathered());
    held_.drop(gathered() + shard_);
  }

  void loss_backward(const ScheduleAction& action) {
    if (step_.loss_chunk_size == 0) {
      const bool deferred = action.microbatch >= step_.num_microbatches - step_.deferred_output_gradients;
      held_.add(gathered());
      held_.drop(gathered());
      if (!deferred) held_.drop(shard_);  // normed
      logits_backward(step_.tokens() * vocabulary() * kFp32, deferred);
    }
    leave_row_parallel();
    held_.add(shard_);
    held_.drop(shard_);
    held_.drop(shard_ + statistics_);  // input, statistics
  }

  const TrainingStep& step_;
  const core::TransformerConfig& model_;
  int stage_;
  Placement placement_;
  int tp_;
  int64_t hidden_, shard_, query_, key_, lse_, product_, fc1_, statistics_, head_statistics_;
  std::vector<RecomputePlan> plans_;     // of each chunk
  const RecomputePlan* plan_ = nullptr;  // of the action's chunk
  std::vector<ScheduleAction> actions_;
  std::vector<bool> dropped_, turns_around_, weights_wait_;  // of each micro-batch and chunk
  int64_t sent_ = 0;
  bool deferred_ = false;                   // of the backward that is replayed: gradients of weights
  int64_t operands_ = 0;                    // that it leaves
  std::vector<int64_t> operands_of_chunk_;  // of one micro-batch
  int64_t leaving_operands_ = 0;            // the same of a layer's operands
  int64_t leaving_ = 0;                     // to the tier, and still in memory
  int64_t swapped_bytes_ = 0;
  Held held_, tier_;
};

}  // namespace

int64_t activation_bytes(const TrainingStep& step, int stage) {
  Replay replay(step, stage);
  replay.run();
  return replay.peak();
}

StepMemory step_memory(const TrainingStep& step, int rank) {
  const RankGrid grid = step.layout.grid();
  const int stage = grid.coordinates(rank).pp;
  const StageParameters held = stage_parameters(step, stage);
  const int64_t owned = step.layout.zero_stage > 0 ? held.buffer_elems / grid.dp : held.buffer_elems;
  Replay replay(step, stage);
  replay.run();
  const int64_t master = step.reuse_fp32_param ? 2 : step.dtype == core::DType::kFp32 ? 0 : kFp32;
  return {.param = held.buffer_elems * core::size_of(step.dtype),
          .grad = kFp32 * (held.buffer_elems + held.tied_row_elems),
          .master = master * owned,
          .optim = 2 * kFp32 * owned,
          .act = replay.peak(),
          .comm = communication_buffer_bytes(step, rank),
          .tier = replay.tier_peak(),
          .swapped = replay.swapped_bytes()};
}

}  // namespace ms::layout
