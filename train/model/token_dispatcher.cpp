#include "train/model/token_dispatcher.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "core/error.h"
#include "train/features/expert_parallel.h"
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

// Counts of rows as counts of elements.
std::vector<int64_t> times(const std::vector<int64_t>& rows, int64_t width) {
  std::vector<int64_t> elements = rows;
  for (int64_t& count : elements) count *= width;
  return elements;
}

core::Dims with_rows(const TensorView& x, int64_t rows) {
  core::Dims shape = x.shape();
  shape[0] = rows;
  return shape;
}

int64_t row_size(const TensorView& x) { return x.shape().size() == 1 ? 1 : x.dim(1); }

// All experts are on this rank.
class LocalDispatcher : public TokenDispatcher {
 public:
  explicit LocalDispatcher(RankState& state) : state_(state), num_experts_(state.config.model.num_experts) {}

  void start_dispatch(const TensorView& tokens, MoeActivations& saved) override { sort(tokens, saved); }
  void finish_dispatch(MoeActivations& saved) override {
    saved.ends = ops::group_ends(saved.sent);
    saved.busiest = *std::ranges::max_element(saved.sent);
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
      : LocalDispatcher(state), grid_(state.groups.grid), at_(state.groups.at_experts) {}

  void start_dispatch(const TensorView& tokens, MoeActivations& saved) override {
    sort(tokens, saved);
    plan(saved);
    post_to_experts(saved.pass.rows, std::move(saved.permuted), saved.exchange);
  }
  void finish_dispatch(MoeActivations& saved) override {
    saved.permuted = take_at_experts(saved.pass.rows, saved.exchange);
  }

  void start_again(const TensorView& tokens, MoeActivations& saved) override {
    post_to_experts(saved.pass.again, own_rows(tokens, saved), saved.exchange);
  }
  void finish_again(MoeActivations& saved) override {
    saved.permuted = take_at_experts(saved.pass.again, saved.exchange);
  }

  void start_combine(Tensor rows, MoeActivations& saved) override {
    post_from_experts(saved.pass.rows, std::move(rows), saved.exchange);
  }
  Tensor finish_combine(MoeActivations& saved) override {
    return combined(take_from_experts(saved.pass.rows, saved.exchange), saved);
  }

  void start_dispatch_gradient(const TensorView& dy, MoeActivations& saved) override {
    RowGradients own = of_own_rows(dy, saved);
    post_to_experts(saved.pass.rows, std::move(own.rows), saved.exchange);
    post_to_experts(saved.pass.weights, std::move(own.weights), saved.exchange);
  }
  RowGradients finish_dispatch_gradient(MoeActivations& saved) override {
    Tensor rows = take_at_experts(saved.pass.rows, saved.exchange);
    return {std::move(rows), take_at_experts(saved.pass.weights, saved.exchange)};
  }

  void start_combine_gradient(RowGradients of, MoeActivations& saved) override {
    post_from_experts(saved.pass.rows, std::move(of.rows), saved.exchange);
    post_from_experts(saved.pass.weights, std::move(of.weights), saved.exchange);
  }
  TokenGradients finish_combine_gradient(MoeActivations& saved) override {
    Tensor rows = take_from_experts(saved.pass.rows, saved.exchange);
    return of_own_tokens({std::move(rows), take_from_experts(saved.pass.weights, saved.exchange)}, saved);
  }

 private:
  // From how many rows each rank has for each expert, which all tell each other: who sends how many to whom, and where
  // the experts here find theirs.
  void plan(MoeActivations& saved) {
    const int64_t experts_each = num_experts_ / grid_.ep, first = at_.ep * experts_each;
    const auto ranks = static_cast<size_t>(grid_.etp * grid_.ep), experts = static_cast<size_t>(num_experts_);
    std::vector<int64_t> all(ranks * experts);  // [rank of all_experts, expert]
    const auto view = [](std::vector<int64_t>& counts) {
      return TensorView(counts.data(), core::DType::kInt64, {static_cast<int64_t>(counts.size())});
    };
    state_.groups.all_experts().allgather(view(saved.sent), view(all));
    const auto rows_of = [&](int ep, int etp, int64_t expert) {  // etp is the fastest axis of the group
      return all[static_cast<size_t>(ep * grid_.etp + etp) * experts + static_cast<size_t>(expert)];
    };
    const auto rows_to = [&](int ep, int etp, int64_t first_expert) {
      int64_t rows = 0;
      for (int64_t expert = first_expert; expert < first_expert + experts_each; ++expert)
        rows += rows_of(ep, etp, expert);
      return rows;
    };
    std::vector<int64_t> totals(experts);
    for (size_t i = 0; i < all.size(); ++i) totals[i % experts] += all[i];
    saved.busiest = *std::ranges::max_element(totals);
    RowExchange& exchange = saved.exchange = {};
    for (int ep = 0; ep < grid_.ep; ++ep) {
      exchange.sent.push_back(rows_to(at_.ep, at_.etp, ep * experts_each));
      exchange.received.push_back(rows_to(ep, at_.etp, first));
    }
    std::vector<int64_t> sizes(static_cast<size_t>(experts_each));  // rows of each expert here
    for (int etp = 0; etp < grid_.etp; ++etp) {
      int64_t shared = 0;
      for (int ep = 0; ep < grid_.ep; ++ep) {
        for (int64_t e = 0; e < experts_each; ++e) {
          const int64_t rows = rows_of(ep, etp, first + e);
          shared += rows;
          sizes[static_cast<size_t>(e)] += rows;
        }
      }
      exchange.shared.push_back(shared);
    }
    saved.ends = ops::group_ends(sizes);
    std::vector<int64_t> next(sizes.size());  // free place of each expert
    for (size_t e = 1; e < next.size(); ++e) next[e] = saved.ends[e - 1];
    int64_t from = 0;
    for (int etp = 0; etp < grid_.etp; ++etp) {  // the order in which rows arrive
      for (int ep = 0; ep < grid_.ep; ++ep) {
        for (int64_t e = 0; e < experts_each; ++e) {
          const int64_t rows = rows_of(ep, etp, first + e);
          exchange.blocks.push_back({from, next[static_cast<size_t>(e)], rows});
          from += rows;
          next[static_cast<size_t>(e)] += rows;
        }
      }
    }
  }

  Tensor rows_like(const TensorView& x, int64_t rows) {
    return Tensor(state_.ops.arena, x.dtype(), with_rows(x, rows), core::MemoryTag::kAct);
  }
  core::Work post_alltoall(const TensorView& x, const std::vector<int64_t>& from, const TensorView& y,
                           const std::vector<int64_t>& to) {
    const int64_t width = row_size(x);
    return state_.groups.of_training(layout::Group::kEp)->ialltoallv(x, times(from, width), y, times(to, width));
  }
  void share(TensorUnderWay& way, Tensor x, const RowExchange& exchange) {
    Tensor shared = rows_like(x, sum(exchange.shared));
    core::Work work = state_.groups.expert_parts().iallgatherv(x, times(exchange.shared, row_size(x)), shared);
    way.post(std::move(x), std::move(shared), std::move(work));
  }
  void send_back(TensorUnderWay& way, Tensor x, const RowExchange& exchange) {
    Tensor sent = rows_like(x, sum(exchange.sent));
    core::Work work = post_alltoall(x, exchange.received, sent, exchange.sent);
    way.post(std::move(x), std::move(sent), std::move(work));
  }

  // x: rows that this rank sends, sorted by expert of the layer -> rows of the experts here. The ranks of an expert
  // share what arrives.
  void post_to_experts(TensorUnderWay& way, Tensor x, const RowExchange& exchange) {
    if (grid_.ep == 1) return share(way, std::move(x), exchange);
    Tensor received = rows_like(x, sum(exchange.received));
    core::Work work = post_alltoall(x, exchange.sent, received, exchange.received);
    way.post(std::move(x), std::move(received), std::move(work));
  }
  Tensor take_at_experts(TensorUnderWay& way, const RowExchange& exchange) {
    Tensor x = way.take();
    if (grid_.ep > 1 && grid_.etp > 1) {
      share(way, std::move(x), exchange);
      x = way.take();
    }
    return ops::move_row_blocks(state_.ops, std::move(x), exchange.blocks);
  }

  // The way back: what the etp ranks have is added up.
  void post_from_experts(TensorUnderWay& way, Tensor x, const RowExchange& exchange) {
    x = ops::move_row_blocks(state_.ops, std::move(x), exchange.blocks, /*back=*/true);
    if (grid_.etp == 1) return send_back(way, std::move(x), exchange);
    Tensor own = rows_like(x, exchange.shared[static_cast<size_t>(at_.etp)]);
    core::Work work = state_.groups.expert_parts().ireduce_scatterv(x, times(exchange.shared, row_size(x)), own);
    way.post(std::move(x), std::move(own), std::move(work));
  }
  Tensor take_from_experts(TensorUnderWay& way, const RowExchange& exchange) {
    Tensor x = way.take();
    if (grid_.ep == 1 || grid_.etp == 1) return x;
    send_back(way, std::move(x), exchange);
    return way.take();
  }

  const layout::RankGrid grid_;
  const layout::RankGrid::ExpertCoordinates at_;
};

// Every rank has all tokens, and computes for them what its experts give.
class AllgatherDispatcher : public TokenDispatcher {
 public:
  explicit AllgatherDispatcher(RankState& state)
      : state_(state),
        ranks_(state.groups.all_experts()),
        experts_each_(state.config.model.num_experts / state.groups.grid.ep),
        first_expert_(state.groups.at_experts.ep * experts_each_) {}

  void start_dispatch(const TensorView& tokens, MoeActivations& saved) override {
    saved.sent = ops::tokens_per_expert(saved.routing.sent_to(), state_.config.model.num_experts);
    gather(saved.pass.choices, saved.routing.sent_to());
    gather(saved.pass.weights, saved.routing.probs);
    gather(saved.pass.rows, tokens);
  }
  // The rows are counted and sorted while the tokens arrive.
  void finish_dispatch(MoeActivations& saved) override {
    saved.all_experts = saved.pass.choices.take();
    saved.busiest = std::ranges::max(ops::tokens_per_expert(saved.all_experts, state_.config.model.num_experts));
    for (int32_t& expert : saved.all_experts.elements<int32_t>()) {
      const int64_t own = expert - first_expert_;
      expert = static_cast<int32_t>(own >= 0 && own < experts_each_ ? own : experts_each_);
    }
    saved.ends = ops::group_ends(ops::tokens_per_expert(saved.all_experts, experts_each_));
    saved.rows_of_slots = ops::sort_by_expert(state_.ops, saved.all_experts);
    saved.all_probs = saved.pass.weights.take();
    const Tensor all = saved.pass.rows.take();
    saved.permuted = ops::permute_sorted(state_.ops, all, saved.rows_of_slots, saved.rows());
  }

  void start_again(const TensorView& tokens, MoeActivations& saved) override { gather(saved.pass.again, tokens); }
  void finish_again(MoeActivations& saved) override {
    const Tensor all = saved.pass.again.take();
    saved.permuted = ops::permute_sorted(state_.ops, all, saved.rows_of_slots, saved.rows());
  }

  void start_combine(Tensor rows, MoeActivations& saved) override {
    Tensor all =
        ops::token_unpermute(state_.ops, rows, saved.rows_of_slots, &saved.all_probs.view(), all_tokens(saved));
    rows.reset();
    scatter(saved.pass.rows, std::move(all));
  }
  Tensor finish_combine(MoeActivations& saved) override { return saved.pass.rows.take(); }

  void start_dispatch_gradient(const TensorView& dy, MoeActivations& saved) override { gather(saved.pass.rows, dy); }
  RowGradients finish_dispatch_gradient(MoeActivations& saved) override {
    Tensor weights = weights_of_rows(state_.ops, saved.rows_of_slots, saved.all_probs, saved.rows());
    const Tensor all = saved.pass.rows.take();
    return {ops::permute_sorted(state_.ops, all, saved.rows_of_slots, saved.rows()), std::move(weights)};
  }

  void start_combine_gradient(RowGradients of, MoeActivations& saved) override {
    Tensor probs = of_slots(state_.ops, saved.rows_of_slots, of.weights);
    of.weights.reset();
    Tensor tokens = ops::token_permute_backward(state_.ops, of.rows, saved.rows_of_slots, all_tokens(saved));
    of.rows.reset();
    scatter(saved.pass.rows, std::move(tokens));
    scatter(saved.pass.weights, std::move(probs));
  }
  TokenGradients finish_combine_gradient(MoeActivations& saved) override {
    Tensor tokens = saved.pass.rows.take();
    return {std::move(tokens), saved.pass.weights.take()};
  }

 private:
  static int64_t all_tokens(const MoeActivations& saved) { return saved.rows_of_slots.dim(0); }

  // x [T, ..], which stays as it is until it has arrived -> [n T, ..]
  void gather(TensorUnderWay& way, const TensorView& x) {
    Tensor all(state_.ops.arena, x.dtype(), with_rows(x, ranks_.size() * x.dim(0)), core::MemoryTag::kAct);
    core::Work work = ranks_.iallgather(x, all);
    way.post(std::move(all), std::move(work));
  }
  // x [n T, ..] -> [T, ..]: this rank's tokens, added up over all ranks.
  void scatter(TensorUnderWay& way, Tensor x) {
    Tensor own(state_.ops.arena, x.dtype(), with_rows(x, x.dim(0) / ranks_.size()), core::MemoryTag::kAct);
    core::Work work = ranks_.ireduce_scatter(x, own);
    way.post(std::move(x), std::move(own), std::move(work));
  }

  RankState& state_;
  core::Communicator& ranks_;
  int64_t experts_each_, first_expert_;
};

}  // namespace

std::unique_ptr<TokenDispatcher> make_token_dispatcher(RankState& state) {
  if (!dispatches_tokens(state.config)) return std::make_unique<LocalDispatcher>(state);
  if (gathers_tokens(state.config.parallel)) return std::make_unique<AllgatherDispatcher>(state);
  return std::make_unique<AlltoallDispatcher>(state);
}

}  // namespace ms::train
