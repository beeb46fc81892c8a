#include "train/model/multi_token_prediction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "core/io/json.h"
#include "tests/train/model/gradient_check.h"
#include "train/model/rotary_embedding.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 12, kBatch = 2;
constexpr int64_t kDirection = 100;  // bench/peers/mtp.py

Microbatch microbatch() {
  Microbatch result;
  result.batch = kBatch;
  result.seq = kSeq;
  for (int32_t i = 0; i < kBatch * kSeq; ++i) {
    result.tokens.push_back(i * 53 % 257);
    result.labels.push_back(i * 37 % 257);
    result.loss_mask.push_back(i % 5 == 3 ? 0.0F : 1.0F);
  }
  return result;
}

void use_mtp(TrainerConfig& config) {
  config.model.mtp_num_layers = 2;
  config.training.mtp_loss_scaling_factor = 0.3;
  config.training.seq_length = kSeq;
  config.training.micro_batch_size = kBatch;
}

// The layers of a rank, with the model's output layer.
class Layers {
 public:
  explicit Layers(Rank& rank)
      : rank_(rank),
        rope_(make_rope_table(rank.arena, rank.config.model, {{0, kSeq}}, kSeq)),
        head_(*rank.state, *rank.parameters),
        mtp_(*rank.state, *rank.parameters, rope_ ? &*rope_ : nullptr) {}

  // normed: what the output layer of the model reads.
  void forward(const core::TensorView& normed) {
    main_ = {};
    main_.normed = core::Tensor(rank_.arena, core::DType::kFp32, normed.shape(), core::MemoryTag::kAct);
    std::ranges::copy(normed.elements<float>(), main_.normed.data<float>());
    saved_.clear();
    const double tokens = std::reduce(batch_.loss_mask.begin(), batch_.loss_mask.end(), 0.0);
    mtp_.forward(batch_, head_, main_.normed, 1 / tokens, {}, {}, saved_);
  }
  // The gradient of normed, and of all parameters, of the losses' sum with its factor.
  core::Tensor backward() {
    WeightGradients at_once;
    return mtp_.backward(head_, main_, {}, at_once, saved_);
  }
  const std::vector<MtpActivations>& saved() const { return saved_; }
  double loss() const {
    double sum = 0;
    for (const MtpActivations& one : saved_) sum += one.value.mean();
    return sum * rank_.config.training.mtp_loss_scaling_factor / static_cast<double>(saved_.size());
  }

 private:
  Rank& rank_;
  Microbatch batch_ = microbatch();
  std::optional<ops::RopeTable> rope_;
  LossHead head_;
  MultiTokenPrediction mtp_;
  LossActivations main_;
  std::vector<MtpActivations> saved_;
};

std::vector<float> values(int64_t count, int64_t number, double base, double scale) {
  std::vector<float> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double value = std::sin(0.37 * static_cast<double>((i + 1) * (i + 2)) + static_cast<double>(number));
    result[static_cast<size_t>(i)] = static_cast<float>(base + scale * value);
  }
  return result;
}

void expect_gradient(const std::string& name, const core::TensorView& seen, const nlohmann::json& want,
                     int64_t number) {
  const auto elements = seen.elements<float>();
  const std::vector<float> direction = values(seen.size(), number + kDirection, 0, 1);
  double square = 0, product = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    square += static_cast<double>(elements[i]) * elements[i];
    product += static_cast<double>(elements[i]) * direction[i];
  }
  const double length = want.at(0);
  EXPECT_NEAR(std::sqrt(square), length, 1e-5 * length) << name;
  const double of_direction = std::sqrt(static_cast<double>(elements.size()));
  EXPECT_NEAR(product, want.at(1).get<double>(), 1e-5 * length * of_direction) << name;
}

// Against float64 and autograd, by another program: bench/peers/mtp.py.
TEST(MultiTokenPrediction, LossesAndGradientsAreThoseOfTheReference) {
  const nlohmann::json want = nlohmann::json::parse(std::ifstream(std::string(MS_TEST_DATA) + "/train/mtp.json"));
  for_each_case({{"two layers", use_mtp}}, [&](Rank& rank) {
    if (rank.state->tp_size() > 1) return;
    std::vector<std::string> keys = {"embedding.word_embeddings.weight", "output_layer.weight"};
    for (const Parameter& parameter : rank.parameters->all()) {
      if (parameter.spec.key.starts_with("mtp.")) keys.push_back(parameter.spec.key);
    }
    for (size_t number = 0; number < keys.size(); ++number) {
      Parameter& parameter = rank.parameters->at(keys[number]);
      const bool is_norm = parameter.weight.shape().size() == 1;
      const int64_t rows = is_norm ? 1 : parameter.spec.global_shape[0];  // not of the padding
      const auto filled =
          values(rows * parameter.spec.global_shape.back(), static_cast<int64_t>(number), is_norm ? 1 : 0, 0.2);
      std::ranges::copy(filled, parameter.weight.data<float>());
    }
    rank.parameters->note_weight_change();
    rank.parameters->zero_grads();
    core::Tensor normed(rank.arena, core::DType::kFp32, hidden_shape(rank, kSeq, kBatch), core::MemoryTag::kTmp);
    std::ranges::copy(values(normed.size(), 50, 0, 1), normed.data<float>());
    Layers layers(rank);
    layers.forward(normed);
    for (size_t k = 0; k < 2; ++k) {
      const double loss = want.at("losses").at(k);
      EXPECT_NEAR(layers.saved()[k].value.mean(), loss, 1e-6 * loss) << k;
    }
    const core::Tensor dx = layers.backward();
    const nlohmann::json& gradients = want.at("gradients");
    ASSERT_EQ(gradients.size(), keys.size() + 1);
    for (size_t number = 0; number < keys.size(); ++number) {
      const Parameter& parameter = rank.parameters->at(keys[number]);
      core::TensorView gradient = parameter.main_grad;
      if (gradient.shape().size() > 1) gradient = gradient.rows(0, parameter.spec.global_shape[0]);
      expect_gradient(keys[number], gradient, gradients.at(keys[number]), static_cast<int64_t>(number));
    }
    expect_gradient("hidden", dx, gradients.at("hidden"), static_cast<int64_t>(keys.size()));
  });
}

// On several ranks, too.
TEST(MultiTokenPrediction, GradientsAreDifferencesOfTheLoss) {
  const std::vector<ModuleCase> cases = {{"two layers", use_mtp},
                                         {"brief logits",
                                          [](TrainerConfig& config) {
                                            use_mtp(config);
                                            config.training.mtp_mem_efficient_logits = true;
                                          }},
                                         {"in chunks, with biases of norms", [](TrainerConfig& config) {
                                            use_mtp(config);
                                            config.training.loss_chunk_size = 5;
                                            config.model.normalization = "LayerNorm";
                                          }}};
  for (const char* prefix : {"mtp.", "embedding.", "output_layer."}) {
    // Where logits are brief, a forward adds to the output layer's gradient.
    const bool all = std::string_view(prefix) == "mtp.";
    for_each_case(all ? cases : std::vector<ModuleCase>{cases[0]}, [&](Rank& rank) {
      Layers layers(rank);
      const auto forward = [&](const core::TensorView& x) {
        layers.forward(x);
        core::Tensor y(rank.arena, core::DType::kFp32, {1}, core::MemoryTag::kTmp);
        y.data<float>()[0] = static_cast<float>(layers.loss());
        return y;
      };
      const auto backward = [&](core::Tensor dy) {  // the loss is the same on all ranks
        core::Tensor dx = layers.backward();
        double scale = dy.data<float>()[0];
        if (rank.state->sequence_parallel()) rank.state->groups.tp.allreduce(std::span(&scale, 1));
        for (float& g : dx.view().elements<float>()) g *= static_cast<float>(scale);
        for (Parameter& parameter : rank.parameters->all())
          for (float& g : parameter.main_grad.elements<float>()) g *= static_cast<float>(scale);
        return dx;
      };
      GradientCheck(rank, {forward, backward}, prefix).run(hidden_shape(rank, kSeq, kBatch));
    });
  }
}

}  // namespace
}  // namespace ms::train
