// Models whose attention differs from Llama's agree with transformers in float64 (tests/data/train/attention_families,
// made by bench/peers/attention_families.py), on one rank and in layouts: 1e-5 relative in the loss, 1e-4 relative L2
// in the gradient of every tensor.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "convert/safetensors.h"
#include "tests/ckpt/memory_source.h"
#include "tests/support/tiny_run.h"
#include "train/data/indexed_dataset.h"

namespace ms {
namespace {

using nlohmann::json;
using test::TinyLayout;

constexpr double kLossBar = 1e-5;
constexpr double kGradientBar = 1e-4;
constexpr double kLearningRate = 64;  // far above the weights: rounding of the new ones says little of the gradients

std::string golden(const std::string& file) { return core::cat(MS_TEST_DATA, "/train/attention_families/", file); }

struct NamedTensor {
  core::Dims shape;
  std::vector<float> values;
};
using NamedTensors = std::map<std::string, NamedTensor>;

NamedTensors read_fp32_file(const std::string& path) {
  const convert::SafetensorsReader reader(path);
  NamedTensors tensors;
  for (size_t i = 0; i < reader.header().size(); ++i) {
    const auto tensor = reader.header()[i];
    EXPECT_EQ(tensor.dtype, convert::SafetensorsDType::kF32) << tensor.name;
    NamedTensor& read = tensors[std::string(tensor.name)];
    for (const uint64_t size : tensor.shape) read.shape.push_back(static_cast<int64_t>(size));
    read.values.resize((tensor.end - tensor.begin) / sizeof(float));
    reader.read(tensor.begin, std::as_writable_bytes(std::span(read.values)));
  }
  return tensors;
}

// One step of SGD on all samples, from which the gradients follow.
train::TrainerConfig one_step(const json& reference, const TinyLayout& layout, const std::filesystem::path& folder) {
  train::TrainerConfig config = test::tiny_config(folder, layout);
  config.model = {};
  config.optimizer.optimizer = "sgd";
  config.optimizer.sgd_momentum = 0;
  config.optimizer.lr = kLearningRate;
  config.optimizer.weight_decay = 0;
  config.optimizer.clip_grad = 0;
  std::vector<std::string> words;
  for (const auto& [name, value] : reference.at("flags").items()) {
    words.push_back("--" + name);
    if (!value.is_boolean()) words.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  core::ConfigFields fields = config.fields();
  EXPECT_TRUE(fields.parse_flags(words).empty());
  const auto tokens = reference.at("tokens").get<std::vector<int32_t>>();
  train::IndexedDatasetBuilder builder(folder / "row", train::TokenType::kUint16);
  builder.add_document(tokens);
  builder.finalize();
  config.data.data_path.clear();
  config.data.split.clear();
  config.data.train_data_path = {folder / "row"};
  config.training.train_iters = 1;
  config.training.global_batch_size = static_cast<int64_t>(tokens.size()) / config.training.seq_length;
  if (config.model.num_layers == 3 && layout.pp == 2) config.parallel.num_layer_list = {2, 1};
  config.checkpoint.load = "golden";
  config.checkpoint.finetune = true;
  config.checkpoint.save = folder / "save";
  return config;
}

class AttentionFamilies : public testing::TestWithParam<std::tuple<const char*, TinyLayout>> {};

TEST_P(AttentionFamilies, LossAndGradientsAgree) {
  const auto& [name, layout] = GetParam();
  const json reference = json::parse(std::ifstream(golden(core::cat(name, ".json"))));
  const NamedTensors weights = read_fp32_file(golden(core::cat(name, ".weights.safetensors")));
  const test::TemporaryFolder folder;
  const train::TrainerConfig config = one_step(reference, layout, folder.path());
  core::TransformerConfig model = config.model;
  if (!config.training.window_size.empty()) model.sliding_window = 5;  // of --window-size 4,0
  model.resolve(config.training.seq_length);
  const train::RunSummary summary =
      test::run_on_threads(config, layout.ranks(), [&](const std::filesystem::path&, int64_t) {
        auto source = std::make_unique<ckpt::test::MemorySource>();
        source->state().model = model;
        for (const auto& [key, tensor] : weights)
          source->set(key, core::TensorRole::kParam, tensor.shape, tensor.values);
        return source;
      });
  ASSERT_EQ(summary.steps.size(), 1U);
  const double loss = reference.at("loss");
  EXPECT_NEAR(summary.steps[0].loss, loss, kLossBar * loss);

  std::map<std::string, std::vector<float>> gradients, expected;
  for (const auto& [key, tensor] : read_fp32_file(golden(core::cat(name, ".gradients.safetensors"))))
    expected[key] = tensor.values;
  for (const auto& [key, after] : test::read_tensors(summary.checkpoint, core::TensorRole::kParam)) {
    const std::vector<float>& before = weights.at(key).values;
    std::vector<float>& gradient = gradients[key];
    for (size_t i = 0; i < after.size(); ++i)
      gradient.push_back(static_cast<float>((double{before.at(i)} - double{after[i]}) / kLearningRate));
  }
  EXPECT_LT(test::largest_distance(gradients, expected), kGradientBar);
}

// Alone, with TP and sequence parallelism, PP, and each way to share sequences that windows allow.
const auto kLayouts = testing::Values(
    TinyLayout{}, TinyLayout{2, 1, 1, 0, true}, TinyLayout{1, 2, 1}, TinyLayout{1, 1, 1, 0, false, 1, "", "", 2, "a2a"},
    TinyLayout{1, 1, 1, 0, false, 1, "", "", 2, "p2p"}, TinyLayout{1, 1, 1, 0, false, 1, "", "", 2, "all_gather"},
    TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "a2a+p2p"}, TinyLayout{2, 1, 1, 0, true, 1, "", "", 2, "p2p"});

INSTANTIATE_TEST_SUITE_P(Transformers, AttentionFamilies,
                         testing::Combine(testing::Values("gpt_oss", "gemma3"), kLayouts), [](const auto& test) {
                           return core::cat(std::get<0>(test.param), "_", std::get<1>(test.param).name());
                         });

// An output gate, also where ranks share a query group, and with adaptive algorithms.
INSTANTIATE_TEST_SUITE_P(Gates, AttentionFamilies, testing::Combine(testing::Values("qwen3_next"), kLayouts),
                         [](const auto& test) { return std::get<1>(test.param).name(); });
INSTANTIATE_TEST_SUITE_P(MoreGates, AttentionFamilies,
                         testing::Combine(testing::Values("qwen3_next"),
                                          testing::Values(TinyLayout{4, 1, 1, 0, true}, TinyLayout{1, 1, 2, 3, false},
                                                          TinyLayout{1, 1, 1, 0, false, 1, "", "", 2, "adaptive"},
                                                          TinyLayout{1, 1, 1, 0, false, 1, "", "", 4,
                                                                     "hybrid_adaptive"})),
                         [](const auto& test) { return std::get<1>(test.param).name(); });

}  // namespace
}  // namespace ms
