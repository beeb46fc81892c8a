// --freeze-parameters: what does not train keeps its bits and has no state, and the rest trains as before.
#include <gtest/gtest.h>

#include <regex>

#include "ckpt/reader.h"
#include "ckpt/reshard.h"
#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using core::TensorRole;
using test::TinyLayout;
using Tensors = std::map<std::string, std::vector<float>>;

// All but the last layer and the output layer; biases and norms of attention.
const char* const kExpressions[] = {"^embedding|layers\\.[0-2]\\.", "bias$|linear_qkv|layernorm", "output_layer"};

train::TrainerConfig configured(const test::TemporaryFolder& folder, const TinyLayout& layout, bool gpt) {
  train::TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.optimizer.clip_grad = 0;  // else the factor of the other gradients depends on the frozen ones
  if (gpt) {
    config.model.normalization = "LayerNorm";
    config.model.position_embedding_type = "learned_absolute";
    config.model.swiglu = false;
    config.model.add_bias_linear = true;
  }
  return config;
}

std::string run(train::TrainerConfig config, const TinyLayout& layout, int64_t steps, const std::string& save,
                const std::string& load = "") {
  config.training.train_iters = steps;
  config.checkpoint.save = save;
  config.checkpoint.load = load;
  return test::run_on_threads(config, layout.ranks()).checkpoint;
}

class Frozen : public testing::TestWithParam<std::tuple<TinyLayout, bool, int>> {};

TEST_P(Frozen, KeepTheirBitsAndTheOthersTrainAlike) {
  const auto& [layout, gpt, which] = GetParam();
  const char* expression = kExpressions[which];
  const test::TemporaryFolder folder;
  train::TrainerConfig config = configured(folder, layout, gpt);
  const Tensors all = test::read_tensors(run(config, layout, 1, folder / "all"), TensorRole::kParam);
  config.optimizer.freeze_parameters = expression;
  const std::string frozen = run(config, layout, 1, folder / "frozen");
  config.optimizer.lr = 1e-30;
  const Tensors start = test::read_tensors(run(config, layout, 1, folder / "start"), TensorRole::kParam);
  const Tensors weights = test::read_tensors(frozen, TensorRole::kParam);
  const Tensors moments = test::read_tensors(frozen, TensorRole::kExpAvg);
  size_t kept = 0;
  for (const auto& [name, values] : weights) {
    const bool is_frozen = std::regex_search(name, std::regex(expression));
    kept += is_frozen ? 1 : 0;
    EXPECT_EQ(values, is_frozen ? start.at(name) : all.at(name)) << name;
    EXPECT_EQ(moments.count(name), is_frozen ? 0U : 1U) << name;
  }
  EXPECT_EQ(weights.size(), all.size());
  EXPECT_GT(kept, 0U);
  EXPECT_LT(kept, weights.size());
}

INSTANTIATE_TEST_SUITE_P(Table, Frozen,
                         testing::Combine(testing::Values(TinyLayout{}, TinyLayout{1, 2, 2, true},
                                                          TinyLayout{2, 1, 2, true, true},
                                                          TinyLayout{1, 2, 1, false, false, 1, "zb-h1"}),
                                          testing::Bool(), testing::Values(0, 1, 2)),
                         [](const auto& test) {
                           return core::cat(std::get<0>(test.param).name(),
                                            std::get<1>(test.param) ? "_gpt_" : "_llama_", std::get<2>(test.param));
                         });

TEST(FreezeParameters, ResumeIsBitwiseEqualAndAnotherLayoutContinues) {
  const test::TemporaryFolder folder;
  const TinyLayout layout{1, 2, 2, true}, other{2, 1, 2, false, true};
  train::TrainerConfig config = configured(folder, layout, false);
  config.training.bf16 = true;
  config.optimizer.freeze_parameters = kExpressions[0];
  const std::string whole = run(config, layout, 8, folder / "whole");
  config.training.exit_interval = 4;
  run(config, layout, 8, folder / "parts");
  const auto source = ckpt::open_native(folder / "parts");
  EXPECT_NO_THROW(ckpt::plan_reshard(*source, {.tensor_model_parallel_size = 2}, {})) << "none has been lost";
  config.training.exit_interval = 0;
  const std::string parts = run(config, layout, 8, folder / "same", folder / "parts");
  for (const TensorRole role : {TensorRole::kParam, TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
    EXPECT_EQ(test::largest_distance(test::read_tensors(parts, role), test::read_tensors(whole, role)), 0)
        << core::role_name(role);
  }
  train::TrainerConfig elsewhere = configured(folder, other, false);
  elsewhere.training.bf16 = true;
  elsewhere.optimizer.freeze_parameters = kExpressions[0];
  const std::string continued = run(elsewhere, other, 8, folder / "other", folder / "parts");
  EXPECT_LT(test::largest_distance(test::read_tensors(continued, TensorRole::kParam),
                                   test::read_tensors(whole, TensorRole::kParam)),
            2e-2);
}

TEST(FreezeParameters, ResumeWithFewerOfThemNamesThoseWithoutState) {
  const test::TemporaryFolder folder;
  for (const TinyLayout& layout : {TinyLayout{}, TinyLayout{1, 2, 2, true}}) {
    train::TrainerConfig config = configured(folder, layout, false);
    config.optimizer.freeze_parameters = "final_layernorm|layers\\.0\\..*proj";
    run(config, layout, 1, folder / "save");
    config.optimizer.freeze_parameters = "final_layernorm";
    const test::Thrown thrown = test::thrown_by([&] { run(config, layout, 2, "", folder / "save"); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
    EXPECT_NE(thrown.text.find("no optimizer state of decoder.layers.0.self_attention.linear_proj.weight: it was saved "
                               "with --freeze-parameters final_layernorm|layers\\.0\\..*proj, "),
              std::string::npos)
        << thrown.text;
    EXPECT_NE(thrown.text.find("--no-load-optim"), std::string::npos) << thrown.text;
    config.checkpoint.load_optim = false;
    EXPECT_NO_THROW(run(config, layout, 2, "", folder / "save"));
    config.checkpoint.load_optim = true;
    config.optimizer.freeze_parameters = "layernorm|layers\\.0\\.";  // more of them: state is left out
    EXPECT_NO_THROW(run(config, layout, 2, "", folder / "save"));
    std::filesystem::remove_all(folder / "save");
  }
}

TEST(FreezeParameters, RefusesExpressionsThatFreezeNothingOrAll) {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const char* expression) {
    train::TrainerConfig config = configured(folder, {}, false);
    config.optimizer.freeze_parameters = expression;
    return test::thrown_by([&] { run(config, {}, 1, folder / "save"); }).text;
  };
  EXPECT_NE(refusal("layers.99").find("no parameter has such a name"), std::string::npos);
  EXPECT_NE(refusal(".").find("nothing would train"), std::string::npos);
  EXPECT_NE(refusal("(").find("--freeze-parameters"), std::string::npos);
}

}  // namespace
}  // namespace ms
