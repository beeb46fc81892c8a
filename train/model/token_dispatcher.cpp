#include "train/model/token_dispatcher.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "core/error.h"
#include "train/features/expert_parallel.h"
#include "train/model/row_exchanger.h"
#include "train/ops/grouped_matmul.h"
#include "train/ops/token_permute.h"

namespace ms::train {
namespace {

using core::Tensor;
using core::TensorView;

// fp32 [rows]: the weight of each row, of the choice that it was made for. probs: of the choices.
Tensor weights_of_rows(ops::Context& ops, const TensorView& rows_of_slots, const TensorView& probs, int64_t rows) {
  Tensor weights(ops.arena, core::DType::kFp32, {rows}, core::MemoryTag::kAct);
  const auto row = rows_of_slots.elements<int32_t>();
  for (size_t slot = 0; slot < row.size(); ++slot) {
    if (row[slot] < rows) weights.data<float>()[row[slot]] = probs.data<float>()[slot];
  }
  return weights;
}

// The other way: of each row -> of each choice, 0 where it has no row.
Tensor of_slots(ops::Context& ops, const TensorView& rows_of_slots, const TensorView& of_rows) {
  Tensor result(ops.arena, core::DType::kFp32, rows_of_slots.shape(), core::MemoryTag::kAct);
  const auto row = rows_of_slots.elements<int32_t>();
  for (size_t slot = 0; slot < row.size(); ++slot)
    result.data<float>()[slot] = row[slot] < of_rows.size() ? of_rows.data<float>()[row[slot]] : 0;
  return result;
}

int64_t sum(std::span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

core::Dims with_rows(const TensorView& x, int64_t rows) {
  core::Dims shape = x.shape();
  shape[0] = rows;
  return shape;
}

RanksOfExperts all_ranks_of_experts(RankState& state) {
  ProcessGroups& groups = state.groups;
  return {.all = groups.all_experts(),
          .ep = groups.grid.ep > 1 ? groups.of_training(layout::Group::kEp) : nullptr,
          .etp = groups.grid.etp > 1 ? &groups.expert_parts() : nullptr,
          .at_ep = groups.at_experts.ep,
          .at_etp = groups.at_experts.etp,
          .experts_each = state.config.model.num_experts / groups.grid.ep};
}

// All experts are on this rank.
class LocalDispatcher : public TokenDispatcher {
 public:
  explicit LocalDispatcher(RankState& state) : state_(state), num_experts_(state.config.model.num_experts) {}

  void start_dispatch(const TensorView& tokens, MoeActivations& saved) override { sort(tokens, saved); }
  void finish_dispatch(MoeActivations& saved) override {
    saved.ends = ops::group_ends(saved.sent);
    saved.busiest = *std::ranges::max_element(saved.sent);
    saved.all_rows = sum(saved.sent);
  }

  void start_again(const TensorView& tokens, MoeActivations& saved) override {
    saved.pass.again.keep(own_rows(tokens, saved));
  }
  void finish_again(MoeActivations& saved) override { saved.permuted = saved.pass.again.take(); }

  void start_combine(Tensor rows, MoeActivations& saved) override { saved.pass.rows.keep(std::move(rows)); }
  Tensor finish_combine(MoeActivations& saved) override { return combined(saved.pass.rows.take(), saved); }

  void start_dispatch_gradient(const TensorView& dy, MoeActivations& saved) override {
    RowGradients own = of_own_rows(dy, saved);
    saved.pass.rows.keep(std::move(own.rows));
    saved.pass.weights.keep(std::move(own.weights));
  }
  RowGradients finish_dispatch_gradient(MoeActivations& saved) override {
    return {saved.pass.rows.take(), saved.pass.weights.take()};
  }

  void start_combine_gradient(RowGradients of, MoeActivations& saved) override {
    saved.pass.rows.keep(std::move(of.rows));
    saved.pass.weights.keep(std::move(of.weights));
  }
  TokenGradients finish_combine_gradient(MoeActivations& saved) override {
    return of_own_tokens({saved.pass.rows.take(), saved.pass.weights.take()}, saved);
  }

 protected:
  // This rank's rows, sorted by expert of the layer, to saved.permuted.
  void sort(const TensorView& tokens, MoeActivations& saved) {
    saved.sent = ops::tokens_per_expert(saved.routing.sent_to(), num_experts_);
    ops::PermutedTokens sorted = ops::token_permute(state_.ops, tokens, saved.routing.sent_to(), sum(saved.sent));
    saved.permuted = std::move(sorted.tokens);
    saved.rows_of_slots = std::move(sorted.sorted_indices);
  }

  // What this rank's rows, in that order, have to do with its tokens.
  Tensor own_rows(const TensorView& tokens, const MoeActivations& saved) {
    return ops::permute_sorted(state_.ops, tokens, saved.rows_of_slots, sum(saved.sent));
  }
  Tensor combined(Tensor rows, const MoeActivations& saved) {
    return ops::token_unpermute(state_.ops, rows, saved.rows_of_slots, &saved.routing.probs.view(), num_tokens(saved));
  }
  RowGradients of_own_rows(const TensorView& dy, const MoeActivations& saved) {
    const int64_t rows = sum(saved.sent);
    Tensor weights = weights_of_rows(state_.ops, saved.rows_of_slots, saved.routing.probs, rows);
    return {own_rows(dy, saved), std::move(weights)};
  }
  TokenGradients of_own_tokens(RowGradients of, const MoeActivations& saved) {
    Tensor tokens = ops::token_permute_backward(state_.ops, of.rows, saved.rows_of_slots, num_tokens(saved));
    of.rows.reset();
    return {std::move(tokens), of_slots(state_.ops, saved.rows_of_slots, of.weights)};
  }

  RankState& state_;
  int64_t num_experts_;

 private:
  static int64_t num_tokens(const MoeActivations& saved) { return saved.rows_of_slots.dim(0); }
};

// Rows travel to the ranks of their experts, and back.
class AlltoallDispatcher : public LocalDispatcher {
 public:
  explicit AlltoallDispatcher(RankState& state)
      : LocalDispatcher(state), exchanger_(state.ops, all_ranks_of_experts(state)) {}

  void start_dispatch(const TensorView& tokens, MoeActivations& saved) override {
    sort(tokens, saved);
    exchanger_.plan(saved.sent, saved);
    exchanger_.post_to_experts(saved.pass.rows, std::move(saved.permuted), saved.exchange);
  }
  void finish_dispatch(MoeActivations& saved) override {
    saved.permuted = exchanger_.take_at_experts(saved.pass.rows, saved.exchange);
  }

  void start_again(const TensorView& tokens, MoeActivations& saved) override {
    exchanger_.post_to_experts(saved.pass.again, own_rows(tokens, saved), saved.exchange);
  }
  void finish_again(MoeActivations& saved) override {
    saved.permuted = exchanger_.take_at_experts(saved.pass.again, saved.exchange);
  }

  void start_combine(Tensor rows, MoeActivations& saved) override {
    exchanger_.post_from_experts(saved.pass.rows, std::move(rows), saved.exchange);
  }
  Tensor finish_combine(MoeActivations& saved) override {
    return combined(exchanger_.take_from_experts(saved.pass.rows, saved.exchange), saved);
  }

  void start_dispatch_gradient(const TensorView& dy, MoeActivations& saved) override {
    RowGradients own = of_own_rows(dy, saved);
    exchanger_.post_to_experts(saved.pass.rows, std::move(own.rows), saved.exchange);
    exchanger_.post_to_experts(saved.pass.weights, std::move(own.weights), saved.exchange);
  }
  RowGradients finish_dispatch_gradient(MoeActivations& saved) override {
    Tensor rows = exchanger_.take_at_experts(saved.pass.rows, saved.exchange);
    return {std::move(rows), exchanger_.take_at_experts(saved.pass.weights, saved.exchange)};
  }

  void start_combine_gradient(RowGradients of, MoeActivations& saved) override {
    exchanger_.post_from_experts(saved.pass.rows, std::move(of.rows), saved.exchange);
    exchanger_.post_from_experts(saved.pass.weights, std::move(of.weights), saved.exchange);
  }
  TokenGradients finish_combine_gradient(MoeActivations& saved) override {
    Tensor rows = exchanger_.take_from_experts(saved.pass.rows, saved.exchange);
    return of_own_tokens({std::move(rows), exchanger_.take_from_experts(saved.pass.weights, saved.exchange)}, saved);
  }

 private:
  RowExchanger exchanger_;
};

// Every rank has all tokens, and computes for them what its experts give. With --moe-hierarchical-alltoallv it has
// those of the ranks in its place of other blocks, of which its block has the experts: within it rows go to them.
class AllgatherDispatcher : public TokenDispatcher {
 public:
  explicit AllgatherDispatcher(RankState& state)
      : state_(state),
        ranks_(state.groups.all_experts()),
        experts_each_(state.config.model.num_experts / state.groups.grid.ep),
        first_expert_(state.groups.at_experts.ep * experts_each_) {}
  // of_block: the ranks of this one's block.
  AllgatherDispatcher(RankState& state, core::Communicator& ranks, const RanksOfExperts& of_block)
      : state_(state),
        ranks_(ranks),
        experts_each_(of_block.experts_each * of_block.num_ep()),
        first_expert_(of_block.first_expert),
        block_(std::in_place, state.ops, of_block) {}

  void start_dispatch(const TensorView& tokens, MoeActivations& saved) override {
    saved.sent = ops::tokens_per_expert(saved.routing.sent_to(), num_experts());
    if (tokens_differ_) tell_tokens(tokens.dim(0), saved);
    gather(saved.pass.choices, saved.routing.sent_to(), saved);
    gather(saved.pass.weights, saved.routing.probs, saved);
    gather(saved.pass.rows, tokens, saved);
  }
  // The rows are counted and sorted while the tokens arrive.
  void finish_dispatch(MoeActivations& saved) override {
    saved.all_experts = saved.pass.choices.take();
    std::vector<int64_t> counts = ops::tokens_per_expert(saved.all_experts, num_experts());
    saved.busiest = std::ranges::max(counts);
    saved.all_rows = sum(counts);
    if (block_) block_->plan(std::move(counts), saved);
    for (int32_t& expert : saved.all_experts.elements<int32_t>()) {
      const int64_t own = expert - first_expert_;
      expert = static_cast<int32_t>(own >= 0 && own < experts_each_ ? own : experts_each_);
    }
    if (!block_) saved.ends = ops::group_ends(ops::tokens_per_expert(saved.all_experts, experts_each_));
    saved.rows_of_slots = ops::sort_by_expert(state_.ops, saved.all_experts);
    saved.all_probs = saved.pass.weights.take();
    Tensor rows = own_rows(saved.pass.rows.take(), saved);
    saved.permuted = within_block(std::move(rows), saved);
  }

  void start_again(const TensorView& tokens, MoeActivations& saved) override {
    gather(saved.pass.again, tokens, saved);
  }
  void finish_again(MoeActivations& saved) override {
    Tensor rows = own_rows(saved.pass.again.take(), saved);
    saved.permuted = within_block(std::move(rows), saved);
  }

  void start_combine(Tensor rows, MoeActivations& saved) override {
    rows = from_block(std::move(rows), saved);
    Tensor all =
        ops::token_unpermute(state_.ops, rows, saved.rows_of_slots, &saved.all_probs.view(), all_tokens(saved));
    rows.reset();
    scatter(saved.pass.rows, std::move(all), saved);
  }
  Tensor finish_combine(MoeActivations& saved) override { return saved.pass.rows.take(); }

  void start_dispatch_gradient(const TensorView& dy, MoeActivations& saved) override {
    gather(saved.pass.rows, dy, saved);
  }
  RowGradients finish_dispatch_gradient(MoeActivations& saved) override {
    Tensor weights = weights_of_rows(state_.ops, saved.rows_of_slots, saved.all_probs, num_rows(saved));
    Tensor rows = own_rows(saved.pass.rows.take(), saved);
    if (!block_) return {std::move(rows), std::move(weights)};
    block_->post_to_experts(saved.pass.rows, std::move(rows), saved.exchange);
    block_->post_to_experts(saved.pass.weights, std::move(weights), saved.exchange);
    rows = block_->take_at_experts(saved.pass.rows, saved.exchange);
    return {std::move(rows), block_->take_at_experts(saved.pass.weights, saved.exchange)};
  }

  void start_combine_gradient(RowGradients of, MoeActivations& saved) override {
    if (block_) {
      block_->post_from_experts(saved.pass.rows, std::move(of.rows), saved.exchange);
      block_->post_from_experts(saved.pass.weights, std::move(of.weights), saved.exchange);
      of.rows = block_->take_from_experts(saved.pass.rows, saved.exchange);
      of.weights = block_->take_from_experts(saved.pass.weights, saved.exchange);
    }
    Tensor probs = of_slots(state_.ops, saved.rows_of_slots, of.weights);
    of.weights.reset();
    Tensor tokens = ops::token_permute_backward(state_.ops, of.rows, saved.rows_of_slots, all_tokens(saved));
    of.rows.reset();
    scatter(saved.pass.rows, std::move(tokens), saved);
    scatter(saved.pass.weights, std::move(probs), saved);
  }
  TokenGradients finish_combine_gradient(MoeActivations& saved) override {
    Tensor tokens = saved.pass.rows.take();
    return {std::move(tokens), saved.pass.weights.take()};
  }

 private:
  int64_t num_experts() const { return state_.config.model.num_experts; }
  static int64_t all_tokens(const MoeActivations& saved) { return saved.rows_of_slots.dim(0); }
  // Of all tokens that are here, for the experts of the block, or of this rank.
  int64_t num_rows(const MoeActivations& saved) const { return block_ ? sum(saved.exchange.sent) : saved.rows(); }
  Tensor own_rows(const Tensor& all, const MoeActivations& saved) {
    return ops::permute_sorted(state_.ops, all, saved.rows_of_slots, num_rows(saved));
  }
  // To the rank of the block that has their expert, and back.
  Tensor within_block(Tensor rows, MoeActivations& saved) {
    if (!block_) return rows;
    TensorUnderWay way;  // saved.pass may have another exchange
    block_->post_to_experts(way, std::move(rows), saved.exchange);
    return block_->take_at_experts(way, saved.exchange);
  }
  Tensor from_block(Tensor rows, MoeActivations& saved) {
    if (!block_) return rows;
    TensorUnderWay way;
    block_->post_from_experts(way, std::move(rows), saved.exchange);
    return block_->take_from_experts(way, saved.exchange);
  }

  // How many tokens each rank has: replicas have micro-batches of other lengths.
  void tell_tokens(int64_t tokens, MoeActivations& saved) {
    const auto view = [](int64_t* numbers, int64_t count) { return TensorView(numbers, core::DType::kInt64, {count}); };
    saved.gathered_tokens.resize(static_cast<size_t>(ranks_.size()));
    ranks_.allgather(view(&tokens, 1), view(saved.gathered_tokens.data(), ranks_.size()));
  }
  // x [T, ..], which stays as it is until it has arrived -> [n T, ..], or as many rows as all have
  void gather(TensorUnderWay& way, const TensorView& x, const MoeActivations& saved) {
    const std::vector<int64_t>& of_ranks = saved.gathered_tokens;
    const int64_t rows = tokens_differ_ ? sum(of_ranks) : ranks_.size() * x.dim(0);
    Tensor all(state_.ops.arena, x.dtype(), with_rows(x, rows), core::MemoryTag::kAct);
    core::Work work = tokens_differ_ ? ranks_.iallgatherv(x, elements_of(of_ranks, x), all) : ranks_.iallgather(x, all);
    way.post(std::move(all), std::move(work));
  }
  // x of all their rows -> [T, ..]: this rank's tokens, added up over all ranks.
  void scatter(TensorUnderWay& way, Tensor x, const MoeActivations& saved) {
    const std::vector<int64_t>& of_ranks = saved.gathered_tokens;
    const int64_t rows = tokens_differ_ ? of_ranks[static_cast<size_t>(ranks_.rank())] : x.dim(0) / ranks_.size();
    Tensor own(state_.ops.arena, x.dtype(), with_rows(x, rows), core::MemoryTag::kAct);
    core::Work work =
        tokens_differ_ ? ranks_.ireduce_scatterv(x, elements_of(of_ranks, x), own) : ranks_.ireduce_scatter(x, own);
    way.post(std::move(x), std::move(own), std::move(work));
  }

  RankState& state_;
  core::Communicator& ranks_;
  bool tokens_differ_ = state_.config.parallel.variable_seq_lengths;  // from rank to rank
  int64_t experts_each_, first_expert_;
  std::optional<RowExchanger> block_;
};

std::unique_ptr<TokenDispatcher> make_hierarchical_dispatcher(RankState& state) {
  ProcessGroups& groups = state.groups;
  const int64_t experts_each = state.config.model.num_experts / groups.grid.ep;
  const int block = groups.at_experts.ep / groups.grid.tp;
  return std::make_unique<AllgatherDispatcher>(state, *groups.ep_outer,
                                               RanksOfExperts{.all = groups.tp,
                                                              .ep = &groups.tp,
                                                              .at_ep = groups.at.tp,
                                                              .first_expert = block * groups.grid.tp * experts_each,
                                                              .experts_each = experts_each});
}

}  // namespace

std::unique_ptr<TokenDispatcher> make_token_dispatcher(RankState& state) {
  if (!dispatches_tokens(state.config)) return std::make_unique<LocalDispatcher>(state);
  if (exchanges_hierarchically(state.config)) return make_hierarchical_dispatcher(state);
  if (gathers_tokens(state.config.parallel)) return std::make_unique<AllgatherDispatcher>(state);
  return std::make_unique<AlltoallDispatcher>(state);
}

}  // namespace ms::train
