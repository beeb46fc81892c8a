// The sparse mixer: a token's two experts are drawn, one after the other, from a softmax over the logits that are near
// the highest one of those left (SparseMixer-v2, arXiv 2409.12136; Phi-3.5-MoE's router in transformers, sparsemixer;
// MindSpeed-LLM, core/transformer/moe/router.py, sparsemixer_top2).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace ms::ops::detail {

inline constexpr size_t kMixedExperts = 2;

class SparseMixer {
 public:
  explicit SparseMixer(size_t experts) : gates_(experts) {}

  // draws: uniform in (0, 1), for each of the two experts one a logit and one more, after each other; empty: the
  // likeliest experts, with their gates as weights.
  void choose(std::span<const float> logits, std::span<const float> draws, std::span<int32_t> experts,
              std::span<double> weights) {
    const size_t each = logits.size() + 1;
    for (size_t i = 0; i < kMixedExperts; ++i) {
      const size_t best = fill_gates(logits, experts.first(i));
      const size_t chosen = draws.empty() ? best : drawn(logits, draws.subspan(i * each, logits.size()), best);
      // Heun's third-order method: three quarters of the draws of another one than the likeliest count a third.
      const bool is_midpoint = !draws.empty() && chosen != best && draws[i * each + logits.size()] <= kShareOfMidpoints;
      experts[i] = static_cast<int32_t>(chosen);
      weights[i] = gates_[chosen] * (is_midpoint ? kMidpoint : 1);
    }
  }

  // Adds to dlogits the gradient of two weights, each as that of a gate, whatever Heun's method has made of it.
  void backward(std::span<const float> logits, std::span<const int32_t> experts, std::span<const float> dweights,
                float* dlogits) {
    for (size_t i = 0; i < kMixedExperts; ++i) {
      fill_gates(logits, experts.first(i));
      const auto chosen = static_cast<size_t>(experts[i]);
      const double dgate = dweights[i] * gates_[chosen];
      for (size_t e = 0; e < gates_.size(); ++e)
        dlogits[e] += static_cast<float>(dgate * ((e == chosen ? 1 : 0) - gates_[e]));
    }
  }

 private:
  static constexpr float kDistance = 0.02F;  // twice the jitter_eps of both sources
  static constexpr float kShareOfMidpoints = 0.75F;
  static constexpr double kMidpoint = 0.3333;

  // The softmax over the logits that differ from the highest one by no more than kDistance times the larger of the two,
  // by absolute value for the lower one, without those of experts that are taken. Returns the expert of the highest.
  size_t fill_gates(std::span<const float> logits, std::span<const int32_t> taken) {
    const auto is_taken = [&](size_t e) { return !taken.empty() && taken[0] == static_cast<int32_t>(e); };
    size_t best = is_taken(0) ? 1 : 0;
    for (size_t e = best + 1; e < logits.size(); ++e)
      if (!is_taken(e) && logits[e] > logits[best]) best = e;
    double sum = 0;
    for (size_t e = 0; e < logits.size(); ++e) {
      const float distance = (logits[best] - logits[e]) / std::max(std::abs(logits[e]), logits[best]);
      const bool is_far = is_taken(e) || distance > kDistance;
      sum += gates_[e] = is_far ? 0 : std::exp(double{logits[e]} - double{logits[best]});
    }
    for (double& gate : gates_) gate /= sum;
    return best;
  }

  // By Gumbel's noise.
  size_t drawn(std::span<const float> logits, std::span<const float> draws, size_t best) const {
    size_t chosen = best;
    double highest = -std::numeric_limits<double>::infinity();
    for (size_t e = 0; e < logits.size(); ++e) {
      const double noisy = logits[e] - std::log(-std::log(double{draws[e]}));
      if (!(gates_[e] > 0) || !(noisy > highest)) continue;
      highest = noisy;
      chosen = e;
    }
    return chosen;
  }

  std::vector<double> gates_;
};

}  // namespace ms::ops::detail
