#include "train/ops/token_permute.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/rows.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

constexpr int64_t kMaxExperts = 1 << 16;

// Throws unless every index is in [0, end).
void check_indices(std::span<const int32_t> indices, int64_t end, const char* what) {
  for (size_t slot = 0; slot < indices.size(); ++slot) {
    if (indices[slot] >= 0 && indices[slot] < end) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("token_permute: slot ", slot, " names ", what, " ", indices[slot], " of ", end));
  }
}

// Computes the place of each slot in a stable sort by expert.
void sort_slots(std::span<const int32_t> experts, std::span<int32_t> places) {
  check_indices(experts, kMaxExperts, "expert");
  const int32_t last = experts.empty() ? 0 : *std::max_element(experts.begin(), experts.end());
  std::vector<int32_t> next(static_cast<size_t>(last) + 2);
  for (const int32_t expert : experts) ++next[static_cast<size_t>(expert) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (size_t slot = 0; slot < experts.size(); ++slot) places[slot] = next[static_cast<size_t>(experts[slot])]++;
}

// Which slots belong to a token, and which row belongs to a slot.
class Slots {
 public:
  Slots(const TensorView& sorted_indices, int64_t num_tokens, int64_t rows, bool padded_mode)
      : indices_(sorted_indices.elements<int32_t>()), rows_(rows), padded_(padded_mode) {
    const auto slots = static_cast<int64_t>(indices_.size());
    if (padded_) {
      MS_CHECK(rows == slots, "token_permute: ", rows, " rows for ", slots, " slots of experts");
      sort_by_token(num_tokens);
      return;
    }
    MS_CHECK(num_tokens > 0 ? slots % num_tokens == 0 : slots == 0, "token_permute: ", slots, " slots of ", num_tokens,
             " tokens");
    MS_CHECK(rows <= slots, "token_permute: ", rows, " rows for ", slots, " slots");
    check_indices(indices_, slots, "place");
    per_token_ = num_tokens > 0 ? slots / num_tokens : 0;
  }

  int64_t size() const { return static_cast<int64_t>(indices_.size()); }
  int64_t most_per_token() const { return padded_ ? most_ : per_token_; }

  // Calls visit(slot, row) in order for the slots of a token that have a row.
  template <class Visit>
  void of_token(int64_t token, const Visit& visit) const {
    if (padded_) {
      for (int32_t i = first_[static_cast<size_t>(token)]; i < first_[static_cast<size_t>(token) + 1]; ++i) {
        const int64_t slot = by_token_[static_cast<size_t>(i)];
        visit(slot, slot);
      }
      return;
    }
    for (int64_t slot = token * per_token_; slot < (token + 1) * per_token_; ++slot) {
      if (row_of(slot) < rows_) visit(slot, row_of(slot));
    }
  }

  // Row of a slot; at or past the end of the rows if it was dropped.
  int64_t row_of(int64_t slot) const { return padded_ ? slot : indices_[static_cast<size_t>(slot)]; }
  int64_t token_of(int64_t slot) const { return padded_ ? indices_[static_cast<size_t>(slot)] : slot / per_token_; }

 private:
  void sort_by_token(int64_t num_tokens) {
    check_indices(indices_, num_tokens, "token");
    first_.resize(static_cast<size_t>(num_tokens) + 1);
    for (const int32_t token : indices_) ++first_[static_cast<size_t>(token) + 1];
    most_ = *std::max_element(first_.begin(), first_.end());
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    by_token_.resize(indices_.size());
    std::vector<int32_t> next(first_.begin(), first_.end() - 1);
    for (size_t slot = 0; slot < indices_.size(); ++slot) {
      by_token_[static_cast<size_t>(next[static_cast<size_t>(indices_[slot])]++)] = static_cast<int32_t>(slot);
    }
  }

  std::span<const int32_t> indices_;
  int64_t rows_;
  bool padded_;
  int64_t per_token_ = 0;       // slots per token; not in padded mode
  std::vector<int32_t> first_;  // padded: [tokens + 1], where a token's slots begin in by_token_
  std::vector<int32_t> by_token_;
  int64_t most_ = 0;
};

void check_tokens(const TensorView& tokens, const char* what) {
  MS_CHECK(tokens.shape().size() == 2, what, " is ", core::cat(tokens.shape()), ", expected [tokens, h]");
}

void check_probs(const TensorView* probs, const TensorView& sorted_indices) {
  if (probs == nullptr) return;
  detail::check_size(*probs, sorted_indices.size(), "token_unpermute: probs");
  detail::check_dtype(*probs, core::DType::kFp32, "token_unpermute: probs");
}

// The rows of a token and their weights.
template <class T>
struct Terms {
  explicit Terms(int64_t most) : rows(static_cast<size_t>(most)), weights(rows.size()) {}
  std::vector<const T*> rows;
  std::vector<float> weights;
  size_t count = 0;
};

// y[token] = sum over its slots of probs[slot] * rows[row of the slot].
Tensor sum_slots(Context& context, const Slots& slots, const TensorView& rows, const TensorView* probs,
                 int64_t num_tokens) {
  const int64_t h = rows.dim(1);
  Tensor y(context.arena, rows.dtype(), {num_tokens, h}, core::MemoryTag::kAct);
  const kernels::Stores stores = detail::stores_of(y.size_bytes());
  detail::with_type(rows.dtype(), [&]<class T>() {
    context.pool.parallel_for(num_tokens, detail::row_grain(h), [&](int64_t begin, int64_t end) {
      Terms<T> now(slots.most_per_token()), next(slots.most_per_token());
      const auto find = [&](int64_t token) {
        next.count = 0;
        slots.of_token(token, [&](int64_t slot, int64_t row) {
          next.rows[next.count] = rows.data<T>() + row * h;
          next.weights[next.count++] = probs != nullptr ? probs->data<float>()[slot] : 1.0F;
        });
      };
      find(begin);
      for (int64_t token = begin; token < end; ++token) {
        std::swap(now, next);
        find(std::min(token + 1, end - 1));
        std::copy(now.rows.begin() + static_cast<std::ptrdiff_t>(next.count), now.rows.end(),
                  next.rows.begin() + static_cast<std::ptrdiff_t>(next.count));
        kernels::weighted_row_sum(now.rows.data(), probs != nullptr ? now.weights.data() : nullptr,
                                  static_cast<int64_t>(now.count), h, y.data<T>() + token * h, stores,
                                  next.rows.data());
      }
      kernels::store_fence();
    });
  });
  return y;
}

}  // namespace

PermutedTokens token_permute(Context& context, const TensorView& tokens, const TensorView& indices,
                             std::optional<int64_t> num_out_tokens, bool padded_mode) {
  const detail::OpScope scope(context, "ms::token_permute", tokens, indices);
  check_tokens(tokens, "token_permute: tokens");
  const int64_t num_tokens = tokens.dim(0), slots = indices.size(), rows = num_out_tokens.value_or(slots);
  if (rows < 0 || rows > slots || (padded_mode && num_out_tokens)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("token_permute: num_out_tokens ", rows, " of ", slots, padded_mode ? " padded" : "",
                                " slots; it may be 0 to all, and none is taken in padded mode"));
  }
  if (!padded_mode) {
    Tensor places = sort_by_expert(context, indices);
    Tensor sorted = permute_sorted(context, tokens, places, rows);
    return {std::move(sorted), std::move(places)};
  }
  PermutedTokens result{Tensor(context.arena, tokens.dtype(), {rows, tokens.dim(1)}, core::MemoryTag::kAct),
                        Tensor(context.arena, core::DType::kInt32, indices.shape(), core::MemoryTag::kAct)};
  const auto kernel = scope.kernel(-1, tokens.size_bytes() + result.tokens.size_bytes());
  const kernels::Stores stores = detail::stores_of(result.tokens.size_bytes());
  const auto named = indices.elements<int32_t>();
  check_indices(named, num_tokens, "token");
  std::copy(named.begin(), named.end(), result.sorted_indices.elements<int32_t>().begin());
  const int64_t row_bytes = tokens.dim(1) * core::size_of(tokens.dtype());
  context.pool.parallel_for(slots, detail::row_grain(tokens.dim(1)), [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot)
      kernels::copy_row(tokens.bytes() + named[static_cast<size_t>(slot)] * row_bytes, row_bytes,
                        result.tokens.bytes() + slot * row_bytes, stores);
  });
  return result;
}

Tensor sort_by_expert(Context& context, const TensorView& indices) {
  const detail::OpScope scope(context, "ms::sort_by_expert", indices);
  Tensor places(context.arena, core::DType::kInt32, indices.shape(), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 2 * indices.size_bytes());
  sort_slots(indices.elements<int32_t>(), places.elements<int32_t>());
  return places;
}

Tensor permute_sorted(Context& context, const TensorView& tokens, const TensorView& sorted_indices, int64_t rows) {
  const detail::OpScope scope(context, "ms::permute_sorted", tokens, sorted_indices);
  check_tokens(tokens, "permute_sorted: tokens");
  const int64_t num_tokens = tokens.dim(0), row_bytes = tokens.dim(1) * core::size_of(tokens.dtype());
  Tensor sorted(context.arena, tokens.dtype(), {rows, tokens.dim(1)}, core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, tokens.size_bytes() + sorted.size_bytes());
  const kernels::Stores stores = detail::stores_of(sorted.size_bytes());
  const Slots order(sorted_indices, num_tokens, rows, false);
  // Split by token: each is read once, however many rows it is copied to.
  context.pool.parallel_for(num_tokens, detail::row_grain(tokens.dim(1)), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      order.of_token(token, [&](int64_t, int64_t row) {
        kernels::copy_row(tokens.bytes() + token * row_bytes, row_bytes, sorted.bytes() + row * row_bytes, stores);
      });
    }
  });
  return sorted;
}

Tensor token_permute_backward(Context& context, const TensorView& dpermuted, const TensorView& sorted_indices,
                              int64_t num_tokens, bool padded_mode) {
  const detail::OpScope scope(context, "ms::token_permute_backward", dpermuted, sorted_indices);
  check_tokens(dpermuted, "token_permute_backward: dpermuted");
  const Slots slots(sorted_indices, num_tokens, dpermuted.dim(0), padded_mode);
  const int64_t out_bytes = num_tokens * dpermuted.dim(1) * core::size_of(dpermuted.dtype());
  const auto kernel = scope.kernel(-1, dpermuted.size_bytes() + out_bytes);
  return sum_slots(context, slots, dpermuted, nullptr, num_tokens);
}

Tensor token_unpermute(Context& context, const TensorView& permuted, const TensorView& sorted_indices,
                       const TensorView* probs, int64_t num_tokens, bool padded_mode) {
  const detail::OpScope scope(context, "ms::token_unpermute", permuted, sorted_indices);
  check_tokens(permuted, "token_unpermute: permuted");
  check_probs(probs, sorted_indices);
  const Slots slots(sorted_indices, num_tokens, permuted.dim(0), padded_mode);
  const int64_t out_bytes = num_tokens * permuted.dim(1) * core::size_of(permuted.dtype());
  const auto kernel = scope.kernel(-1, permuted.size_bytes() + out_bytes);
  return sum_slots(context, slots, permuted, probs, num_tokens);
}

UnpermuteGradients token_unpermute_backward(Context& context, const TensorView& dy, const TensorView& permuted,
                                            const TensorView& sorted_indices, const TensorView* probs,
                                            bool padded_mode) {
  const detail::OpScope scope(context, "ms::token_unpermute_backward", dy, permuted, sorted_indices);
  check_tokens(dy, "token_unpermute_backward: dy");
  check_tokens(permuted, "token_unpermute_backward: permuted");
  check_probs(probs, sorted_indices);
  const int64_t h = dy.dim(1), rows = permuted.dim(0);
  detail::check_shape(permuted, {rows, h}, "token_unpermute_backward: permuted");
  detail::check_dtype(permuted, dy.dtype(), "token_unpermute_backward: permuted");
  const Slots slots(sorted_indices, dy.dim(0), rows, padded_mode);
  UnpermuteGradients result{Tensor(context.arena, dy.dtype(), {rows, h}, core::MemoryTag::kAct), {}};
  if (probs != nullptr) {
    result.dprobs = Tensor(context.arena, core::DType::kFp32, sorted_indices.shape(), core::MemoryTag::kAct);
  }
  const auto kernel = scope.kernel(-1, dy.size_bytes() + 2 * permuted.size_bytes());
  const kernels::Stores stores = detail::stores_of(permuted.size_bytes());
  detail::with_type(dy.dtype(), [&]<class T>() {
    context.pool.parallel_for(slots.size(), detail::row_grain(h), [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) {
        const int64_t row = slots.row_of(slot);
        const T* gradient = dy.data<T>() + slots.token_of(slot) * h;
        if (probs == nullptr) {
          if (row < rows)
            kernels::copy_row(gradient, h * static_cast<int64_t>(sizeof(T)), result.dpermuted.data<T>() + row * h,
                              stores);
          continue;
        }
        float& dprob = result.dprobs.data<float>()[slot];
        dprob = row >= rows ? 0
                            : kernels::weighted_row_sum_backward(gradient, permuted.data<T>() + row * h,
                                                                 probs->data<float>()[slot], h,
                                                                 result.dpermuted.data<T>() + row * h, stores);
      }
    });
  });
  return result;
}

}  // namespace ms::ops
