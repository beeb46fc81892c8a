// Gradients of a module against differences of its own forward, along directions: the gradient's own, which shows a
// wrong sign or scale, and random ones, which show what is missing. On any number of TP ranks: what ranks share (x
// without SP, replicated parameters) moves the same way on each, what is split has a direction on each.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/random_values.h"
#include "tests/train/model/rank.h"

namespace ms::train {

class GradientCheck {
 public:
  struct Module {
    // x -> y. Every call starts anew: the last one is what backward belongs to.
    std::function<core::Tensor(const core::TensorView& x)> forward;
    std::function<core::Tensor(core::Tensor dy)> backward;  // -> dx, undefined if there is none
  };

  // prefix: of the names of the module's parameters; each must have a gradient.
  GradientCheck(Rank& rank, Module module, std::string prefix)
      : rank_(rank), module_(std::move(module)), prefix_(std::move(prefix)) {
    for (Parameter& parameter : rank_.parameters->all()) randomize(parameter);
    rank_.parameters->note_weight_change();
  }

  // x_shape: [seq', batch, hidden] of this rank; empty: the module has no input that a gradient belongs to.
  void run(const core::Dims& x_shape) {
    const bool has_x = !x_shape.empty();
    core::Tensor x(rank_.arena, core::DType::kFp32, has_x ? x_shape : core::Dims{1}, core::MemoryTag::kTmp);
    fill(x, splits_sequence(), 1);
    rank_.parameters->zero_grads();
    const core::Tensor y = module_.forward(x);
    dy_ = test::RandomValues(salt(splits_sequence(), 2)).make<float>(y.size());
    core::Tensor dy(rank_.arena, core::DType::kFp32, y.shape(), core::MemoryTag::kTmp);
    std::copy(dy_.begin(), dy_.end(), dy.data<float>());
    const core::Tensor dx = module_.backward(std::move(dy));
    if (has_x) check("x", x, dx, splits_sequence(), x);
    for (Parameter& parameter : rank_.parameters->all()) {
      if (parameter.spec.key.rfind(prefix_, 0) != 0) continue;
      if (parameter.grad_is_partial) rank_.state->groups.tp.allreduce(parameter.main_grad);
      const bool is_split = parameter.spec.rule != layout::TpRule::kReplicated;
      check(parameter.spec.key, parameter.weight, parameter.main_grad, is_split, x);
    }
  }

 private:
  bool splits_sequence() const { return rank_.state->sequence_parallel(); }
  uint64_t salt(bool is_split, uint64_t number) const {
    return 1000 * number + (is_split ? static_cast<uint64_t>(rank_.state->tp_rank()) + 1 : 0);
  }
  void fill(const core::TensorView& x, bool is_split, uint64_t number) {
    const auto values = test::RandomValues(salt(is_split, number)).make<float>(x.size());
    std::copy(values.begin(), values.end(), x.data<float>());
  }
  // Weights about as large as trained ones; norms around the identity.
  void randomize(Parameter& parameter) {
    const bool is_split = parameter.spec.rule != layout::TpRule::kReplicated;
    fill(parameter.weight, is_split, 3 + static_cast<uint64_t>(parameter.offset_elems));
    const bool is_matrix = parameter.weight.shape().size() > 1;
    const bool is_norm = parameter.spec.key.find("norm") != std::string::npos && parameter.spec.key.ends_with("weight");
    for (float& value : parameter.weight.elements<float>())
      value = (is_norm ? 1 : 0) + (is_matrix ? 0.3F : 0.2F) * value;
  }

  // Summed over the ranks that have parts.
  double sum_over_ranks(double value, bool is_split) {
    if (is_split && rank_.state->tp_size() > 1) rank_.state->groups.tp.allreduce(std::span(&value, 1));
    return value;
  }
  double dot(std::span<const float> a, std::span<const float> b, bool is_split) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum_over_ranks(sum, is_split);
  }
  double loss(const core::TensorView& x) {
    rank_.parameters->note_weight_change();
    const core::Tensor y = module_.forward(x);
    return dot(y.elements<float>(), dy_, splits_sequence());
  }

  // values: x itself or a parameter, moved along directions.
  void check(const std::string& name, const core::TensorView& values, const core::TensorView& gradient, bool is_split,
             const core::TensorView& x) {
    ASSERT_TRUE(gradient.defined()) << name;
    const std::span<const float> g = gradient.elements<float>();
    const double length = std::sqrt(dot(g, g, is_split));
    ASSERT_TRUE(length > 0 && std::isfinite(length)) << name << " has no gradient";
    for (uint64_t number = 0; number < 4; ++number) {
      std::vector<float> direction(g.begin(), g.end());
      if (number > 0) direction = test::RandomValues(salt(is_split, 100 + number)).make<float>(values.size());
      const double norm = std::sqrt(dot(direction, direction, is_split));
      for (float& part : direction) part = static_cast<float>(part / norm);
      const double seen = dot(g, direction, is_split);
      const double want = difference(values, direction, x);
      EXPECT_NEAR(seen, want, 3e-3 * length)
          << name << ", along " << (number == 0 ? "its gradient" : "a random direction");
    }
  }

  // Of the loss along a direction of length 1: central, of fourth order.
  double difference(const core::TensorView& values, const std::vector<float>& direction, const core::TensorView& x) {
    const auto elements = values.elements<float>();
    const std::vector<float> kept(elements.begin(), elements.end());
    const auto at = [&](float step) {
      for (size_t i = 0; i < kept.size(); ++i) elements[i] = kept[i] + step * direction[i];
      return loss(x);
    };
    constexpr float kStep = 0.04F;
    const double near = at(kStep) - at(-kStep), far = at(2 * kStep) - at(-2 * kStep);
    std::copy(kept.begin(), kept.end(), elements.begin());
    return (8 * near - far) / (12 * static_cast<double>(kStep));
  }

  Rank& rank_;
  Module module_;
  std::string prefix_;
  std::vector<float> dy_;
};

struct ModuleCase {
  const char* name;
  std::function<void(TrainerConfig&)> change;
};

// Runs `check` on each rank of TP 1, TP 2 and TP 2 with SP, for each case.
inline void for_each_case(const std::vector<ModuleCase>& cases, const std::function<void(Rank&)>& check) {
  for (const test::TinyLayout& layout : {test::TinyLayout{}, test::TinyLayout{.tp = 2}, {.tp = 2, .sp = true}}) {
    for (const ModuleCase& one : cases) {
      SCOPED_TRACE(core::cat(one.name, ", ", layout.name()));
      const test::TemporaryFolder folder;
      TrainerConfig config = test::tiny_config(folder.path(), layout);
      config.model.num_layers = 2;
      one.change(config);
      test::run_thread_ranks(layout.ranks(), [&](core::Endpoint& endpoint) {
        Rank rank(endpoint, config);
        check(rank);
      });
    }
  }
}

inline core::Dims hidden_shape(const Rank& rank, int64_t seq, int64_t batch) {
  return {rank.state->sequence_parallel() ? seq / rank.state->tp_size() : seq, batch, rank.config.model.hidden_size};
}

}  // namespace ms::train
