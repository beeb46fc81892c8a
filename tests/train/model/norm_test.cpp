#include "train/model/norm.h"

#include <gtest/gtest.h>

#include "tests/reference/norm.h"
#include "tests/support/random_values.h"
#include "tests/train/model/rank.h"

namespace ms::train {
namespace {

using reference::Array;

constexpr int64_t kRows = 5;

Array array(const core::TensorView& x) {
  const auto elements = x.elements<float>();
  return {elements.begin(), elements.end()};
}

void fill(const core::TensorView& x, uint64_t salt) {
  const auto values = test::RandomValues(salt).make<float>(x.size(), 1.0F);
  std::copy(values.begin(), values.end(), x.data<float>());
}

void expect_near(const Array& seen, const Array& want, const char* what) {
  ASSERT_EQ(seen.size(), want.size()) << what;
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], want[i], 1e-5) << what << " at " << i;
}

struct Kind {
  const char* normalization;
  bool centred;  // --apply-layernorm-1p
};

// The configuration selects formula and parameters; gradients add up, and the residual's gradient is added.
TEST(Norm, FollowsTheConfigurationWithItsOwnParameters) {
  for (const Kind& kind : {Kind{"RMSNorm", false}, {"RMSNorm", true}, {"LayerNorm", false}, {"LayerNorm", true}}) {
    SCOPED_TRACE(core::cat(kind.normalization, kind.centred ? " 1p" : ""));
    const test::TemporaryFolder folder;
    TrainerConfig config = test::tiny_config(folder.path());
    config.model.normalization = kind.normalization;
    config.model.apply_layernorm_1p = kind.centred;
    test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      const bool is_layer_norm = rank.config.model.has_layer_norm();
      const double epsilon = rank.config.model.norm_epsilon, offset = kind.centred ? 1 : 0;
      const std::string weight = "decoder.final_layernorm.weight", bias = "decoder.final_layernorm.bias";
      Parameter& gamma = rank.parameters->at(weight);
      Parameter* beta = rank.parameters->find(bias);
      ASSERT_EQ(beta != nullptr, is_layer_norm);
      fill(gamma.weight, 1);
      if (is_layer_norm) fill(beta->weight, 2);
      const core::Dims shape = {kRows, rank.config.model.hidden_size};
      const auto random = [&](uint64_t salt) {
        core::Tensor x(rank.arena, core::DType::kFp32, shape, core::MemoryTag::kTmp);
        fill(x, salt);
        return x;
      };
      const core::Tensor x = random(3), dy = random(4), dresidual = random(5);
      const auto formula = [&](const Array& at, const Array& scale, const Array& shift) {
        return is_layer_norm ? reference::layer_norm(at, scale, shift, epsilon, offset)
                             : reference::rms_norm(at, scale, epsilon, offset);
      };
      const Array shift = is_layer_norm ? array(beta->weight) : Array();

      Norm norm(*rank.state, *rank.parameters, weight, bias);
      ops::NormStatistics saved;
      expect_near(array(norm.forward(x, saved)), formula(array(x), array(gamma.weight), shift), "y");

      rank.parameters->zero_grads();
      const core::Tensor dx = norm.backward(dy, x, saved);
      const auto gradient = [&](const std::function<Array(const Array&)>& y, const Array& at) {
        return reference::numeric_gradient([&](const Array& v) { return reference::dot(y(v), array(dy)); }, at);
      };
      const Array want_dx = gradient([&](const Array& v) { return formula(v, array(gamma.weight), shift); }, array(x));
      expect_near(array(dx), want_dx, "dx");
      const core::TensorView residual = dresidual;
      const core::Tensor with_residual = norm.backward(dy, x, saved, &residual);
      Array want = want_dx;
      for (size_t i = 0; i < want.size(); ++i) want[i] += array(dresidual)[i];
      expect_near(array(with_residual), want, "dx + dresidual");

      const auto twice = [](Array values) {  // backward runs twice
        for (double& value : values) value *= 2;
        return values;
      };
      expect_near(array(gamma.main_grad),
                  twice(gradient([&](const Array& v) { return formula(array(x), v, shift); }, array(gamma.weight))),
                  "dgamma");
      if (is_layer_norm) {
        expect_near(array(beta->main_grad),
                    twice(gradient([&](const Array& v) { return formula(array(x), array(gamma.weight), v); }, shift)),
                    "dbeta");
      }
    });
  }
}

TEST(Norm, ExistsOnlyWhereTheModelHasIt) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path());
  config.model.qk_layernorm = true;
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    const std::string name = "decoder.layers.0.self_attention.q_layernorm";
    EXPECT_TRUE(optional_norm(true, *rank.state, *rank.parameters, name).has_value());
    EXPECT_FALSE(optional_norm(false, *rank.state, *rank.parameters, "there is no such thing").has_value());
  });
}

}  // namespace
}  // namespace ms::train
