#include "train/model/token_dispatcher.h"

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

  void dispatch(const TensorView& tokens, MoeActivations& saved) override {
    sort(tokens, saved);
    saved.ends = ops::group_ends(saved.sent);
  }

  Tensor combine(Tensor rows, const MoeActivations& saved) override {
    return ops::token_unpermute(state_.ops, rows, saved.rows_of_slots, &saved.routing.probs.view(), num_tokens(saved));
  }

  RowGradients dispatch_gradient(const TensorView& dy, const MoeActivations& saved) override {
    const int64_t rows = sum(saved.sent);
    Tensor weights = weights_of_rows(state_.ops, saved.rows_of_slots, saved.routing.probs, rows);
    return {ops::token_permute(state_.ops, dy, saved.routing.sent_to(), rows).tokens, std::move(weights)};
  }

  TokenGradients combine_gradient(RowGradients of, const MoeActivations& saved) override {
    Tensor tokens = ops::token_permute_backward(state_.ops, of.rows, saved.rows_of_slots, num_tokens(saved));
    of.rows.reset();
    return {std::move(tokens), of_slots(state_.ops, saved.rows_of_slots, of.weights)};
  }

 protected:
  // This rank's rows, sorted by expert of the layer, to saved.permuted.
  void sort(const TensorView& tokens, MoeActivations& saved) {
    saved.sent = ops::tokens_per_expert(saved.routing.sent_to(), num_experts_);
    ops::PermutedTokens sorted = ops::token_permute(state_.ops, tokens, saved.routing.sent_to(), sum(saved.sent));
    saved.permuted = std::move(sorted.tokens);
    saved.rows_of_slots = std::move(sorted.sorted_indices);
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

  void dispatch(const TensorView& tokens, MoeActivations& saved) override {
    sort(tokens, saved);
    plan(saved);
    saved.permuted = to_experts(std::move(saved.permuted), saved.exchange);
  }

  Tensor combine(Tensor rows, const MoeActivations& saved) override {
    return LocalDispatcher::combine(from_experts(std::move(rows), saved.exchange), saved);
  }

  RowGradients dispatch_gradient(const TensorView& dy, const MoeActivations& saved) override {
    RowGradients own = LocalDispatcher::dispatch_gradient(dy, saved);
    own.rows = to_experts(std::move(own.rows), saved.exchange);
    own.weights = to_experts(std::move(own.weights), saved.exchange);
    return own;
  }

  TokenGradients combine_gradient(RowGradients of, const MoeActivations& saved) override {
    of.rows = from_experts(std::move(of.rows), saved.exchange);
    of.weights = from_experts(std::move(of.weights), saved.exchange);
    return LocalDispatcher::combine_gradient(std::move(of), saved);
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

  // x: rows that this rank sends, sorted by expert of the layer -> rows of the experts here.
  Tensor to_experts(Tensor x, const RowExchange& exchange) {
    const int64_t width = row_size(x);
    if (grid_.ep > 1) {
      Tensor received(state_.ops.arena, x.dtype(), with_rows(x, sum(exchange.received)), core::MemoryTag::kAct);
      state_.groups.of_training(layout::Group::kEp)
          ->ialltoallv(x, times(exchange.sent, width), received, times(exchange.received, width))
          .wait();
      x = std::move(received);
    }
    if (grid_.etp > 1) {
      Tensor shared(state_.ops.arena, x.dtype(), with_rows(x, sum(exchange.shared)), core::MemoryTag::kAct);
      state_.groups.expert_parts().iallgatherv(x, times(exchange.shared, width), shared).wait();
      x = std::move(shared);
    }
    return ops::move_row_blocks(state_.ops, std::move(x), exchange.blocks);
  }

  // The way back: what the etp ranks have is added up.
  Tensor from_experts(Tensor x, const RowExchange& exchange) {
    const int64_t width = row_size(x);
    x = ops::move_row_blocks(state_.ops, std::move(x), exchange.blocks, /*back=*/true);
    if (grid_.etp > 1) {
      Tensor own(state_.ops.arena, x.dtype(), with_rows(x, exchange.shared[static_cast<size_t>(at_.etp)]),
                 core::MemoryTag::kAct);
      state_.groups.expert_parts().ireduce_scatterv(x, times(exchange.shared, width), own).wait();
      x = std::move(own);
    }
    if (grid_.ep > 1) {
      Tensor sent(state_.ops.arena, x.dtype(), with_rows(x, sum(exchange.sent)), core::MemoryTag::kAct);
      state_.groups.of_training(layout::Group::kEp)
          ->ialltoallv(x, times(exchange.received, width), sent, times(exchange.sent, width))
          .wait();
      x = std::move(sent);
    }
    return x;
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

  void dispatch(const TensorView& tokens, MoeActivations& saved) override {
    saved.sent = ops::tokens_per_expert(saved.routing.sent_to(), state_.config.model.num_experts);
    saved.all_experts = gather(saved.routing.sent_to());
    saved.all_probs = gather(saved.routing.probs);
    const Tensor all = gather(tokens);
    for (int32_t& expert : saved.all_experts.elements<int32_t>()) {
      const int64_t own = expert - first_expert_;
      expert = static_cast<int32_t>(own >= 0 && own < experts_each_ ? own : experts_each_);
    }
    saved.ends = ops::group_ends(ops::tokens_per_expert(saved.all_experts, experts_each_));
    ops::PermutedTokens sorted = ops::token_permute(state_.ops, all, saved.all_experts, saved.rows());
    saved.permuted = std::move(sorted.tokens);
    saved.rows_of_slots = std::move(sorted.sorted_indices);
  }

  Tensor combine(Tensor rows, const MoeActivations& saved) override {
    Tensor all =
        ops::token_unpermute(state_.ops, rows, saved.rows_of_slots, &saved.all_probs.view(), all_tokens(saved));
    rows.reset();
    return sum_of_all(all);
  }

  RowGradients dispatch_gradient(const TensorView& dy, const MoeActivations& saved) override {
    Tensor weights = weights_of_rows(state_.ops, saved.rows_of_slots, saved.all_probs, saved.rows());
    const Tensor all = gather(dy);
    return {ops::token_permute(state_.ops, all, saved.all_experts, saved.rows()).tokens, std::move(weights)};
  }

  TokenGradients combine_gradient(RowGradients of, const MoeActivations& saved) override {
    const Tensor probs = of_slots(state_.ops, saved.rows_of_slots, of.weights);
    Tensor tokens = ops::token_permute_backward(state_.ops, of.rows, saved.rows_of_slots, all_tokens(saved));
    of.rows.reset();
    Tensor own = sum_of_all(tokens);
    tokens.reset();
    return {std::move(own), sum_of_all(probs)};
  }

 private:
  static int64_t all_tokens(const MoeActivations& saved) { return saved.rows_of_slots.dim(0); }

  // x [T, ..] -> [n T, ..]
  Tensor gather(const TensorView& x) {
    Tensor all(state_.ops.arena, x.dtype(), with_rows(x, ranks_.size() * x.dim(0)), core::MemoryTag::kAct);
    ranks_.allgather(x, all);
    return all;
  }
  // x [n T, ..] -> [T, ..]: this rank's tokens, added up over all ranks.
  Tensor sum_of_all(const TensorView& x) {
    Tensor own(state_.ops.arena, x.dtype(), with_rows(x, x.dim(0) / ranks_.size()), core::MemoryTag::kAct);
    ranks_.reduce_scatter(x, own);
    return own;
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
