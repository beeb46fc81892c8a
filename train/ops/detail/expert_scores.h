// Scores of experts that are each a function of its own logit, and their slopes.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "train/ops/moe_router.h"

namespace ms::ops::detail {

inline constexpr double kTinySum = 1e-20;  // is added to sums of such scores, as in megatron-core

// x [rows, n], fp32.
inline std::span<const float> row_of(const core::TensorView& x, int64_t row) {
  return x.elements<float>().subspan(static_cast<size_t>(row * x.dim(1)), static_cast<size_t>(x.dim(1)));
}

inline double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

inline bool scores_one_by_one(RouterScores scores) {
  return scores == RouterScores::kSigmoid || scores == RouterScores::kSqrtSoftplus;
}

// scores: of those.
inline double score_of(RouterScores scores, double logit) {
  if (scores == RouterScores::kSigmoid) return sigmoid_of(logit);
  return std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))));
}

// The derivative of the score by the logit. score: what score_of gives for it.
inline double slope_of(RouterScores scores, double logit, double score) {
  if (scores == RouterScores::kSigmoid) return score * (1 - score);
  return score > 0 ? sigmoid_of(logit) / (2 * score) : 0;
}

}  // namespace ms::ops::detail
