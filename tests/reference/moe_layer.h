// The block of experts of a layer, token by token, from the definition (megatron/core/transformer/moe): norm, scores,
// choice, the chosen experts' MLPs weighted and added up, shared experts, and the losses that balance the load.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/reference/activation.h"
#include "tests/reference/norm.h"

namespace ms::reference {

struct MoeBlock {
  // What the block is.
  int64_t hidden = 0, ffn = 0, shared_ffn = 0, topk = 2;
  double epsilon = 1e-5;
  std::string scores = "softmax of the chosen";  // "softmax", "sigmoid", "sqrtsoftplus", "sinkhorn"
  int64_t num_groups = 0, group_topk = 0;
  bool groups_by_best = false;  // by their highest score, not by the sum of some
  bool counts_choices = false;  // the auxiliary losses count what was chosen, not what has the highest scores
  Array jitter;                 // of each element of what the router reads; empty: none
  double scaling_factor = 1, capacity_factor = 0;  // 0: none
  bool by_position = false;
  double aux_coeff = 0, seq_aux_coeff = 0, z_coeff = 0, auxiliary_scale = 0;
  int64_t batch = 1;
  // Its weights.
  Array norm, router;                         // [hidden], [experts, hidden]
  Array post_norm;                            // of what the block adds; empty: none
  std::vector<Array> fc1, fc2;                // of each expert: [2 ffn, hidden], gate and up; [hidden, ffn]
  Array shared_fc1, shared_fc2, shared_gate;  // empty: none

  size_t experts() const { return fc1.size(); }
};

namespace moe {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

inline Array softmax(const Array& x) {
  const double max = *std::ranges::max_element(x);
  Array y;
  double sum = 0;
  for (const double one : x) sum += std::exp(one - max);
  for (const double one : x) y.push_back(std::exp(one - max) / sum);
  return y;
}

inline std::vector<size_t> highest(const Array& x, int64_t count) {
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return x[a] > x[b]; });
  order.resize(static_cast<size_t>(count));
  return order;
}

// rows of weight [rows, columns] times x
inline Array product(const Array& weight, const Array& x) {
  Array y(weight.size() / x.size());
  for (size_t i = 0; i < weight.size(); ++i) y[i / x.size()] += weight[i] * x[i % x.size()];
  return y;
}

// SwiGLU
inline Array mlp(const Array& fc1, const Array& fc2, const Array& x) {
  const Array wide = product(fc1, x);
  Array inner;
  for (size_t i = 0; i < wide.size() / 2; ++i) inner.push_back(wide[i] * sigmoid(wide[i]) * wide[i + wide.size() / 2]);
  return product(fc2, inner);
}

// A score that is a function of its own logit.
inline bool is_one_by_one(const MoeBlock& block) { return block.scores == "sigmoid" || block.scores == "sqrtsoftplus"; }
inline double one_score(const MoeBlock& block, double logit) {
  return block.scores == "sqrtsoftplus" ? std::sqrt(std::log(1 + std::exp(logit))) : sigmoid(logit);
}

struct Choice {
  std::vector<size_t> experts;
  Array weights;
};

inline Choice choose(const MoeBlock& block, const Array& logits, const Array& plan) {
  const bool sinkhorn = block.scores == "sinkhorn";
  const bool one_by_one = is_one_by_one(block) || (sinkhorn && block.topk == 1);
  Array scores = block.scores == "softmax" ? softmax(logits) : logits;
  for (size_t e = 0; e < logits.size() && is_one_by_one(block); ++e) scores[e] = one_score(block, logits[e]);
  if (sinkhorn) scores = plan;
  if (block.group_topk > 0) {
    const size_t size = scores.size() / static_cast<size_t>(block.num_groups);
    Array sums;
    for (size_t first = 0; first < scores.size(); first += size) {
      const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(first);
      const Array group(begin, begin + static_cast<std::ptrdiff_t>(size));
      double sum = 0;
      for (const size_t best : highest(group, block.groups_by_best ? 1 : block.topk / block.group_topk))
        sum += group[best];
      sums.push_back(sum);
    }
    const auto kept = highest(sums, block.group_topk);
    for (size_t e = 0; e < scores.size(); ++e)
      if (std::ranges::count(kept, e / size) == 0) scores[e] = -1e300;
  }
  Choice choice{highest(scores, block.topk), {}};
  const Array all = softmax(logits);
  double sum = 0;
  for (const size_t e : choice.experts) {
    choice.weights.push_back(one_by_one ? one_score(block, logits[e]) : all[e]);
    sum += choice.weights.back();
  }
  const bool divides = block.scores == "softmax of the chosen" || (one_by_one && block.topk > 1);
  for (double& weight : choice.weights) weight = weight / (divides ? sum : 1) * block.scaling_factor;
  return choice;
}

// The transport plan of Sinkhorn's algorithm, of all tokens.
inline std::vector<Array> transport(const std::vector<Array>& logits) {
  const size_t tokens = logits.size(), experts = logits[0].size();
  Array rows(tokens, 1), columns(experts, 1);
  for (double error = 1; error > 1e-4;) {
    const Array before = columns;
    for (size_t t = 0; t < tokens; ++t) {
      double sum = 0;
      for (size_t e = 0; e < experts; ++e) sum += columns[e] * std::exp(logits[t][e]);
      rows[t] = 1 / static_cast<double>(tokens) / (sum + 1e-8);
    }
    error = 0;
    for (size_t e = 0; e < experts; ++e) {
      double sum = 0;
      for (size_t t = 0; t < tokens; ++t) sum += rows[t] * std::exp(logits[t][e]);
      columns[e] = 1 / static_cast<double>(experts) / (sum + 1e-8);
      error += std::abs(columns[e] - before[e]) / static_cast<double>(experts);
    }
  }
  std::vector<Array> plan(logits);
  for (size_t t = 0; t < tokens; ++t)
    for (size_t e = 0; e < experts; ++e) plan[t][e] = rows[t] * columns[e] * std::exp(logits[t][e]);
  return plan;
}

inline void drop(const MoeBlock& block, std::vector<Choice>& choices) {
  const double even =
      static_cast<double>(choices.size()) * static_cast<double>(block.topk) / static_cast<double>(block.experts());
  const auto capacity = static_cast<size_t>(std::ceil(even * block.capacity_factor));
  for (size_t e = 0; e < block.experts(); ++e) {
    std::vector<double*> own;
    for (Choice& choice : choices) {
      for (size_t i = 0; i < choice.experts.size(); ++i)
        if (choice.experts[i] == e) own.push_back(&choice.weights[i]);
    }
    if (!block.by_position) std::ranges::stable_sort(own, [](const double* a, const double* b) { return *a > *b; });
    for (size_t i = capacity; i < own.size(); ++i) *own[i] = 0;
  }
}

// E / (k T^2) sum_e n_e sum_t q_te of these tokens.
inline double aux_loss(const MoeBlock& block, const std::vector<Array>& logits) {
  const auto tokens = static_cast<double>(logits.size());
  Array counts(block.experts()), sums(block.experts());
  for (const Array& row : logits) {
    Array scores = softmax(row);
    if (is_one_by_one(block)) {
      double sum = 1e-20;
      for (const double x : row) sum += one_score(block, x);
      for (size_t e = 0; e < row.size(); ++e) scores[e] = one_score(block, row[e]) / sum;
    }
    for (const size_t e : block.counts_choices ? choose(block, row, row).experts : highest(scores, block.topk))
      counts[e] += 1;
    for (size_t e = 0; e < scores.size(); ++e) sums[e] += scores[e];
  }
  const double dot = std::inner_product(counts.begin(), counts.end(), sums.begin(), 0.0);
  return static_cast<double>(block.experts()) / (static_cast<double>(block.topk) * tokens * tokens) * dot;
}

inline double auxiliary(const MoeBlock& block, const std::vector<Array>& logits) {
  double loss = block.aux_coeff * aux_loss(block, logits);
  for (int64_t sample = 0; sample < block.batch; ++sample) {
    std::vector<Array> own;
    for (size_t t = static_cast<size_t>(sample); t < logits.size(); t += static_cast<size_t>(block.batch))
      own.push_back(logits[t]);
    loss += block.seq_aux_coeff * aux_loss(block, own) / static_cast<double>(block.batch);
  }
  for (const Array& row : logits) {
    double sum = 0;
    for (const double x : row) sum += std::exp(x);
    loss += block.z_coeff * std::log(sum) * std::log(sum) / static_cast<double>(logits.size());
  }
  return block.auxiliary_scale * loss;
}

}  // namespace moe

struct MoeResult {
  Array y;                  // x + what the block adds to it
  double auxiliary = 0;     // losses, with their coefficients and the scale
  double least_margin = 1;  // between the scores of the last chosen expert and the next one
};

// x: [tokens, hidden].
inline MoeResult moe_block(const MoeBlock& block, const Array& x) {
  const auto hidden = static_cast<size_t>(block.hidden);
  const Array normed = rms_norm(x, block.norm, block.epsilon);
  std::vector<Array> tokens, logits;
  for (size_t first = 0; first < normed.size(); first += hidden) {
    const auto begin = normed.begin() + static_cast<std::ptrdiff_t>(first);
    tokens.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(hidden));
    Array read = tokens.back();
    for (size_t i = 0; i < hidden && !block.jitter.empty(); ++i) read[i] *= block.jitter[first + i];
    logits.push_back(moe::product(block.router, read));
  }
  MoeResult result;
  std::vector<Array> plan(logits);
  if (block.scores == "sinkhorn") plan = moe::transport(logits);
  std::vector<moe::Choice> choices;
  for (size_t t = 0; t < tokens.size(); ++t) {
    choices.push_back(moe::choose(block, logits[t], plan[t]));
    const auto order = moe::highest(logits[t], static_cast<int64_t>(block.experts()));
    for (size_t i = 0; i + 1 < order.size(); ++i)
      result.least_margin = std::min(result.least_margin, logits[t][order[i]] - logits[t][order[i + 1]]);
  }
  if (block.capacity_factor > 0) moe::drop(block, choices);
  for (size_t t = 0; t < tokens.size(); ++t) {
    Array sum(hidden);
    const auto add = [&](double weight, const Array& part) {
      for (size_t i = 0; i < hidden; ++i) sum[i] += weight * part[i];
    };
    for (size_t i = 0; i < choices[t].experts.size(); ++i) {
      const size_t e = choices[t].experts[i];
      if (choices[t].weights[i] != 0) add(choices[t].weights[i], moe::mlp(block.fc1[e], block.fc2[e], tokens[t]));
    }
    if (!block.shared_fc1.empty()) {
      const double gate = block.shared_gate.empty() ? 1 : moe::sigmoid(moe::product(block.shared_gate, tokens[t])[0]);
      add(gate, moe::mlp(block.shared_fc1, block.shared_fc2, tokens[t]));
    }
    if (!block.post_norm.empty()) sum = rms_norm(sum, block.post_norm, block.epsilon);
    for (size_t i = 0; i < hidden; ++i) result.y.push_back(x[t * hidden + i] + sum[i]);
  }
  result.auxiliary = moe::auxiliary(block, logits);
  return result;
}

}  // namespace ms::reference
