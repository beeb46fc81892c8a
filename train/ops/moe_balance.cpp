#include "train/ops/moe_balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "train/ops/detail/expert_scores.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/top_experts.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::TensorView;

// Scores of one token: q_e = raw_e / sum.
struct TokenScores {
  explicit TokenScores(size_t experts) : raw(experts), scores(experts) {}

  void fill(std::span<const float> logits, RouterScores kind) {
    const bool one_by_one = detail::scores_one_by_one(kind);
    const double max = *std::ranges::max_element(logits);
    sum = sum_exp = 0;
    for (size_t e = 0; e < logits.size(); ++e) {
      const double exponential = std::exp(logits[e] - max);
      sum_exp += exponential;
      sum += raw[e] = one_by_one ? detail::score_of(kind, logits[e]) : exponential;
    }
    if (one_by_one) sum += detail::kTinySum;
    for (size_t e = 0; e < logits.size(); ++e) scores[e] = static_cast<float>(raw[e] / sum);
    log_sum_exp = max + std::log(sum_exp);
  }

  std::vector<double> raw;
  std::vector<float> scores;
  double sum = 0, sum_exp = 0, log_sum_exp = 0;
};

// Of one sample, or of all tokens.
struct Load {
  explicit Load(size_t experts) : tokens(experts), scores(experts) {}
  std::vector<double> tokens;  // n_e
  std::vector<double> scores;  // sum over t of q_te

  double loss(double factor) const {
    double sum = 0;
    for (size_t e = 0; e < tokens.size(); ++e) sum += tokens[e] * scores[e];
    return factor * sum;
  }
};

// The tokens of all parts of the micro-batch.
void sum_tokens(const BalanceParams& params, std::vector<Load>& of_samples, Load& whole) {
  if (!params.sum || !params.counts()) return;
  const size_t experts = whole.tokens.size();
  std::vector<double> all;
  for (const Load& sample : of_samples) all.insert(all.end(), sample.tokens.begin(), sample.tokens.end());
  params.sum(all);
  std::ranges::fill(whole.tokens, 0.0);
  for (size_t i = 0; i < all.size(); ++i) {
    of_samples[i / experts].tokens[i % experts] = all[i];
    whole.tokens[i % experts] += all[i];
  }
}

}  // namespace

BalanceLosses add_balance_gradients(Context& context, const TensorView& logits, const BalanceParams& params,
                                    double scale, const TensorView& dlogits) {
  const detail::OpScope scope(context, "ms::add_balance_gradients", logits);
  detail::check_dtype(logits, core::DType::kFp32, "balance losses: logits");
  detail::check_shape(dlogits, logits.shape(), "balance losses: dlogits");
  const int64_t tokens = logits.dim(0), batch = params.batch;
  MS_CHECK(batch > 0 && tokens % batch == 0, "balance losses: ", tokens, " tokens of ", batch, " samples");
  const auto experts = static_cast<size_t>(logits.dim(1));
  const auto kernel = scope.kernel(-1, 3 * logits.size_bytes());
  std::vector<Load> of_samples(static_cast<size_t>(batch), Load(experts));
  Load whole(experts);
  BalanceLosses losses;
  TokenScores token(experts);
  std::vector<int32_t> best(static_cast<size_t>(params.topk));
  MS_CHECK(params.padding.empty() || static_cast<int64_t>(params.padding.size()) == tokens,
           "balance losses: padding of ", params.padding.size(), " tokens among ", tokens);
  const auto is_padding = [&](int64_t row) {
    return !params.padding.empty() && params.padding[static_cast<size_t>(row)] != 0;
  };
  const auto t = static_cast<double>(params.whole_tokens > 0 ? params.whole_tokens : tokens),
             k = static_cast<double>(params.topk), b = static_cast<double>(batch);
  for (int64_t row = 0; row < tokens; ++row) {  // in order: sums do not depend on threads
    if (is_padding(row)) continue;
    token.fill(detail::row_of(logits, row), params.scores);
    if (params.chosen != nullptr) {
      std::ranges::copy(params.chosen->elements<int32_t>().subspan(static_cast<size_t>(row) * best.size(), best.size()),
                        best.begin());
    } else {
      detail::top_experts(token.scores, best);
    }
    Load& own = of_samples[static_cast<size_t>(row % batch)];
    for (const int32_t e : best) ++own.tokens[static_cast<size_t>(e)], ++whole.tokens[static_cast<size_t>(e)];
    for (size_t e = 0; e < experts; ++e) own.scores[e] += token.scores[e], whole.scores[e] += token.scores[e];
    losses.z += token.log_sum_exp * token.log_sum_exp / t;
  }
  sum_tokens(params, of_samples, whole);
  std::vector<double> of_step = whole.tokens;
  if (params.global_aux_coeff != 0 && params.mean_of_step) params.mean_of_step(of_step);
  const double all_factor = static_cast<double>(experts) / (k * t * t);
  // Micro-batches may have other numbers of tokens; each token counts k times.
  const double step_factor =
      params.global_aux_coeff == 0
          ? 0
          : static_cast<double>(experts) / (t * std::accumulate(of_step.begin(), of_step.end(), 0.0));
  const double sample_factor = static_cast<double>(experts) * b / (k * t * t);  // E / (k (T / b)^2) / b
  losses.aux = whole.loss(all_factor);
  for (size_t e = 0; e < experts; ++e) losses.global_aux += step_factor * of_step[e] * whole.scores[e];
  for (const Load& sample : of_samples) losses.seq_aux += sample.loss(sample_factor);
  context.pool.parallel_for(tokens, detail::row_grain(8 * logits.dim(1)), [&](int64_t begin, int64_t end) {
    TokenScores own(experts);
    std::vector<double> dscores(experts);
    for (int64_t row = begin; row < end; ++row) {
      if (is_padding(row)) continue;
      const std::span<const float> x = detail::row_of(logits, row);
      own.fill(x, params.scores);
      const Load& sample = of_samples[static_cast<size_t>(row % batch)];
      double mean = 0;
      for (size_t e = 0; e < experts; ++e) {
        dscores[e] = params.aux_coeff * all_factor * whole.tokens[e] +
                     params.global_aux_coeff * step_factor * of_step[e] +
                     params.seq_aux_coeff * sample_factor * sample.tokens[e];
        mean += dscores[e] * own.raw[e] / own.sum;
      }
      float* const out = dlogits.data<float>() + row * dlogits.dim(1);
      for (size_t e = 0; e < experts; ++e) {
        const double slope =
            detail::scores_one_by_one(params.scores) ? detail::slope_of(params.scores, x[e], own.raw[e]) : own.raw[e];
        const double softmax = std::exp(x[e] - own.log_sum_exp);
        out[e] += static_cast<float>(
            scale * ((dscores[e] - mean) * slope / own.sum + params.z_coeff * 2 * own.log_sum_exp * softmax / t));
      }
    }
  });
  if (params.aux_coeff == 0) losses.aux = 0;
  if (params.seq_aux_coeff == 0) losses.seq_aux = 0;
  if (params.global_aux_coeff == 0) losses.global_aux = 0;
  if (params.z_coeff == 0) losses.z = 0;
  return losses;
}

}  // namespace ms::ops
