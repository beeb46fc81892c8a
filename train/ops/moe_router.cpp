#include "train/ops/moe_router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "train/ops/detail/expert_scores.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/sparse_mixer.h"
#include "train/ops/detail/top_experts.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

void check_logits(const TensorView& logits, const RouterParams& params) {
  MS_CHECK(logits.shape().size() == 2, "router: logits are ", core::cat(logits.shape()),
           ", expected [tokens, experts]");
  detail::check_dtype(logits, core::DType::kFp32, "router: logits");
  MS_CHECK(params.topk >= 1 && params.topk <= logits.dim(1), "router: ", params.topk, " of ", logits.dim(1),
           " experts");
  MS_CHECK(!params.sparse_mixer || params.topk == detail::kMixedExperts, "router: a mixer of ", params.topk);
}

template <class Body>
void for_tokens(Context& context, const TensorView& logits, const Body& body) {
  context.pool.parallel_for(logits.dim(0), detail::row_grain(8 * logits.dim(1)), body);
}

// Marks the experts of the groups that a token may use with their scores, and lowers the others below all scores.
void keep_best_groups(std::vector<float>& scores, const RouterParams& params) {
  const auto groups = static_cast<size_t>(params.num_groups), size = scores.size() / groups;
  const int64_t of_each = params.groups_by_best ? 1 : params.topk / params.group_topk;
  std::vector<float> sums(groups);
  std::vector<int32_t> best(static_cast<size_t>(of_each)), chosen(static_cast<size_t>(params.group_topk));
  for (size_t group = 0; group < groups; ++group) {
    const std::span<const float> own = std::span(scores).subspan(group * size, size);
    if (params.groups_by_best) {
      sums[group] = *std::ranges::max_element(own);
      continue;
    }
    detail::top_experts(own, best);
    for (const int32_t one : best) sums[group] += own[static_cast<size_t>(one)];
  }
  detail::top_experts(sums, chosen);
  for (size_t group = 0; group < groups; ++group) {
    if (std::ranges::count(chosen, static_cast<int32_t>(group)) > 0) continue;
    std::fill_n(scores.begin() + static_cast<std::ptrdiff_t>(group * size), size,
                -std::numeric_limits<float>::infinity());
  }
}

// Of a token: what its experts are chosen by.
void scores_of(std::span<const float> logits, const RouterParams& params, const float* bias,
               std::vector<float>& scores) {
  if (detail::scores_one_by_one(params.scores)) {
    for (size_t e = 0; e < logits.size(); ++e)
      scores[e] = static_cast<float>(detail::score_of(params.scores, logits[e]));
  } else if (bias != nullptr || (params.scores == RouterScores::kSoftmax && params.group_topk > 0)) {
    // Sums with a bias, and over a group, differ from logits'.
    const double max = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float x : logits) sum += std::exp(x - max);
    for (size_t e = 0; e < logits.size(); ++e) scores[e] = static_cast<float>(std::exp(logits[e] - max) / sum);
  } else {
    std::ranges::copy(logits, scores.begin());
  }
  for (size_t e = 0; bias != nullptr && e < scores.size(); ++e) scores[e] += bias[e];
}

// The weights of a token's chosen experts, without the scaling factor.
void weights_of(std::span<const float> logits, std::span<const int32_t> experts, RouterScores kind, double* weights) {
  const size_t k = experts.size();
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  const bool of_all = kind == RouterScores::kSoftmax;
  if (detail::scores_one_by_one(kind)) {
    for (size_t i = 0; i < k; ++i) sum += weights[i] = detail::score_of(kind, logits[static_cast<size_t>(experts[i])]);
    for (size_t i = 0; i < k && k > 1; ++i) weights[i] /= sum + detail::kTinySum;
    return;
  }
  if (of_all) {
    for (const float x : logits) max = std::max<double>(max, x);
    for (const float x : logits) sum += std::exp(x - max);
  } else {
    for (const int32_t e : experts) max = std::max<double>(max, logits[static_cast<size_t>(e)]);
  }
  for (size_t i = 0; i < k; ++i) {
    weights[i] = std::exp(logits[static_cast<size_t>(experts[i])] - max);
    if (!of_all) sum += weights[i];
  }
  for (size_t i = 0; i < k; ++i) weights[i] /= sum;
}

// Sinkhorn's algorithm (moe_utils.py, sinkhorn): the plan d1 * exp(logits) * d0, whose rows and columns have equal
// sums. In fp32, as there, where it stops at a mean change of 1e-4.
Tensor transport_plan(Context& context, const TensorView& logits, std::span<const uint8_t> padding) {
  const auto tokens = static_cast<size_t>(logits.dim(0)), experts = static_cast<size_t>(logits.dim(1));
  constexpr float kTolerance = 1e-4F, kEps = 1e-8F;
  constexpr int kMaxRounds = 10'000;
  Tensor cost(context.arena, core::DType::kFp32, logits.shape(), core::MemoryTag::kTmp);
  float* const c = cost.data<float>();
  std::ranges::transform(logits.elements<float>(), c, [](float x) { return std::exp(x); });
  std::vector<float> rows(tokens, 1), columns(experts, 1), before;
  std::vector<double> sums(experts);
  const auto is_padding = [&](size_t token) { return !padding.empty() && padding[token] != 0; };
  const auto planned = static_cast<float>(tokens - static_cast<size_t>(std::ranges::count(padding, uint8_t{1})));
  float error = 1;
  for (int round = 0; round < kMaxRounds && error > kTolerance; ++round) {
    before = columns;
    std::ranges::fill(sums, 0.0);
    for (size_t t = 0; t < tokens; ++t) {
      if (is_padding(t)) continue;
      double sum = 0;
      for (size_t e = 0; e < experts; ++e) sum += double{columns[e]} * c[t * experts + e];
      rows[t] = 1 / planned / (static_cast<float>(sum) + kEps);
      for (size_t e = 0; e < experts; ++e) sums[e] += double{rows[t]} * c[t * experts + e];
    }
    error = 0;
    for (size_t e = 0; e < experts; ++e) {
      columns[e] = 1 / static_cast<float>(experts) / (static_cast<float>(sums[e]) + kEps);
      error += std::abs(columns[e] - before[e]) / static_cast<float>(experts);
    }
  }
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t e = 0; e < experts; ++e) c[t * experts + e] *= columns[e] * rows[t];
  }
  return cost;
}

// Destinations of their own, which say so far what the choice does.
void define_destinations(Context& context, Routing& routing) {
  if (routing.destinations.defined()) return;
  routing.destinations = Tensor(context.arena, core::DType::kInt32, routing.experts.shape(), core::MemoryTag::kAct);
  std::ranges::copy(routing.experts.elements<int32_t>(), routing.destinations.data<int32_t>());
}

// The gradient of a token's logits.
void token_backward(std::span<const float> logits, std::span<const int32_t> experts, std::span<const float> dprobs,
                    const RouterParams& params, std::span<double> weights, float* dlogits) {
  const size_t k = experts.size();
  weights_of(logits, experts, params.scores, weights.data());
  double mean = 0;
  for (size_t i = 0; i < k; ++i) mean += dprobs[i] * params.scaling_factor * weights[i];
  if (params.scores == RouterScores::kSoftmax) {
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const float x : logits) max = std::max<double>(max, x);
    for (const float x : logits) sum += std::exp(x - max);
    for (size_t e = 0; e < logits.size(); ++e) dlogits[e] = static_cast<float>(-mean * std::exp(logits[e] - max) / sum);
  }
  double sum_of_chosen = detail::kTinySum;
  for (const int32_t e : experts) {
    if (detail::scores_one_by_one(params.scores))
      sum_of_chosen += detail::score_of(params.scores, logits[static_cast<size_t>(e)]);
  }
  for (size_t i = 0; i < k; ++i) {
    float& dlogit = dlogits[experts[i]];
    const double dweight = dprobs[i] * params.scaling_factor;
    if (params.scores == RouterScores::kSoftmax) {
      dlogit += static_cast<float>(weights[i] * dweight);
    } else if (params.scores == RouterScores::kSoftmaxOfChosen) {
      dlogit = static_cast<float>(weights[i] * (dweight - mean));
    } else {
      const double logit = logits[static_cast<size_t>(experts[i])];
      const double slope = detail::slope_of(params.scores, logit, detail::score_of(params.scores, logit));
      dlogit = static_cast<float>((k > 1 ? (dweight - mean) / sum_of_chosen : dweight) * slope);
    }
  }
}

}  // namespace

Routing choose_experts(Context& context, const TensorView& logits, const RouterParams& params,
                       const TensorView* expert_bias) {
  const detail::OpScope scope(context, "ms::choose_experts", logits);
  check_logits(logits, params);
  const int64_t tokens = logits.dim(0);
  const auto k = static_cast<size_t>(params.topk);
  Routing routing{Tensor(context.arena, core::DType::kInt32, {tokens, params.topk}, core::MemoryTag::kAct),
                  Tensor(context.arena, core::DType::kFp32, {tokens, params.topk}, core::MemoryTag::kAct),
                  {}};
  const auto kernel = scope.kernel(-1, logits.size_bytes() + 2 * routing.probs.size_bytes());
  const float* const bias = expert_bias != nullptr ? expert_bias->data<float>() : nullptr;
  const Tensor plan = params.sinkhorn
                          ? transport_plan(context, params.whole != nullptr ? *params.whole : logits, params.padding)
                          : Tensor();
  const int64_t first_of_plan = params.whole != nullptr ? params.first_token : 0;
  for_tokens(context, logits, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(static_cast<size_t>(logits.dim(1)));
    std::vector<double> weights(k);
    detail::SparseMixer mixer(params.sparse_mixer ? scores.size() : 0);
    for (int64_t token = begin; token < end; ++token) {
      const std::span<const float> row = detail::row_of(logits, token);
      const std::span<int32_t> chosen = routing.experts.elements<int32_t>().subspan(static_cast<size_t>(token) * k, k);
      if (params.fixed) {
        for (size_t i = 0; i < k; ++i)
          chosen[i] = static_cast<int32_t>((static_cast<size_t>(token) * k + i) % scores.size());
      } else if (params.sinkhorn) {
        detail::top_experts(detail::row_of(plan, first_of_plan + token), chosen);
      } else if (!params.sparse_mixer) {
        scores_of(row, params, bias, scores);
        if (params.group_topk > 0) keep_best_groups(scores, params);
        detail::top_experts(scores, chosen);
      }
      if (params.sparse_mixer) {
        mixer.choose(row, params.draws != nullptr ? detail::row_of(*params.draws, token) : std::span<const float>(),
                     chosen, weights);
      } else {
        weights_of(row, chosen, params.scores, weights.data());
      }
      float* const probs = routing.probs.data<float>() + token * params.topk;
      for (size_t i = 0; i < k; ++i) probs[i] = static_cast<float>(weights[i] * params.scaling_factor);
    }
  });
  return routing;
}

Tensor choose_experts_backward(Context& context, const TensorView& dprobs, const TensorView& logits,
                               const Routing& routing, const RouterParams& params) {
  const detail::OpScope scope(context, "ms::choose_experts_backward", dprobs, logits);
  check_logits(logits, params);
  detail::check_shape(dprobs, routing.probs.shape(), "choose_experts_backward: dprobs");
  const auto k = static_cast<size_t>(params.topk);
  Tensor dlogits = Tensor::zeros(context.arena, core::DType::kFp32, logits.shape(), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 2 * logits.size_bytes());
  for_tokens(context, logits, [&](int64_t begin, int64_t end) {
    std::vector<double> weights(k);
    detail::SparseMixer mixer(params.sparse_mixer ? static_cast<size_t>(logits.dim(1)) : 0);
    for (int64_t token = begin; token < end; ++token) {
      const size_t first = static_cast<size_t>(token) * k;
      const std::span<const float> row = detail::row_of(logits, token);
      const std::span<const int32_t> chosen = routing.experts.elements<int32_t>().subspan(first, k);
      const std::span<const float> dweights = dprobs.elements<float>().subspan(first, k);
      float* const own = dlogits.data<float>() + token * logits.dim(1);
      if (params.sparse_mixer) {
        mixer.backward(row, chosen, dweights, own);
      } else {
        token_backward(row, chosen, dweights, params, weights, own);
      }
    }
  });
  return dlogits;
}

int64_t expert_capacity(int64_t num_tokens, int64_t topk, int64_t num_experts, double factor) {
  const auto slots = static_cast<double>(num_tokens * topk);
  return static_cast<int64_t>(std::min(slots, std::ceil(slots / static_cast<double>(num_experts) * factor)));
}

void drop_padding(Context& context, Routing& routing, int64_t num_experts, std::vector<uint8_t> padding) {
  const detail::OpScope scope(context, "ms::drop_padding", routing.experts.view());
  const auto kernel = scope.kernel(-1, 2 * routing.experts.size_bytes() + routing.probs.size_bytes());
  MS_CHECK(padding.empty() || static_cast<int64_t>(padding.size()) == routing.experts.dim(0), "padding of ",
           padding.size(), " tokens among ", routing.experts.dim(0));
  define_destinations(context, routing);
  const auto k = static_cast<size_t>(routing.experts.dim(1));
  for (size_t token = 0; token < padding.size(); ++token) {
    if (padding[token] == 0) continue;
    std::fill_n(routing.destinations.data<int32_t>() + token * k, k, static_cast<int32_t>(num_experts));
    std::fill_n(routing.probs.data<float>() + token * k, k, 0.0F);
  }
  routing.padding = std::move(padding);
}

void drop_beyond_capacity(Context& context, Routing& routing, int64_t num_experts, int64_t capacity,
                          DropPolicy policy) {
  const detail::OpScope scope(context, "ms::drop_beyond_capacity", routing.experts.view());
  const auto kernel = scope.kernel(-1, 2 * routing.experts.size_bytes() + routing.probs.size_bytes());
  define_destinations(context, routing);
  const auto to = routing.destinations.elements<int32_t>();
  const auto probs = routing.probs.elements<float>();
  std::vector<std::vector<size_t>> slots(static_cast<size_t>(num_experts));
  for (size_t slot = 0; slot < to.size(); ++slot)
    if (to[slot] < num_experts) slots[static_cast<size_t>(to[slot])].push_back(slot);
  for (std::vector<size_t>& own : slots) {
    if (static_cast<int64_t>(own.size()) <= capacity) continue;
    if (policy == DropPolicy::kProbs)
      std::ranges::stable_sort(own, [&](size_t a, size_t b) { return probs[a] > probs[b]; });
    for (size_t i = static_cast<size_t>(capacity); i < own.size(); ++i) {
      to[own[i]] = static_cast<int32_t>(num_experts);
      probs[own[i]] = 0;
    }
  }
}

std::vector<int64_t> tokens_per_expert(const TensorView& sent_to, int64_t num_experts) {
  std::vector<int64_t> counts(static_cast<size_t>(num_experts));
  for (const int32_t expert : sent_to.elements<int32_t>()) {
    if (expert < num_experts) ++counts[static_cast<size_t>(expert)];
  }
  return counts;
}

}  // namespace ms::ops
