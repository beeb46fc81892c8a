// Compares the trainer with PyTorch and transformers, whose results are in tests/data: 50 AdamW steps from the same
// weights on the same samples (llama_adamw, gpt2_adamw, .., with experts mixtral_adamw, qwen3_moe_adamw,
// glm4_moe_adamw, olmoe_adamw and qwen2_moe_adamw, and latent attention deepseek_v2_adamw and deepseek_v3_adamw;
// deepseek_v3_mtp_adamw with multi-token prediction; llama_sgd with SGD; made by bench/peers/adamw.py), and the loss of
// untrained models of every family (hf_*, made by tests/data/make_hf_tiny.py). Bounds for both: 1e-5 relative in a
// loss, 1e-4 relative L2 in a tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "convert/convert.h"
#include "convert/detect.h"
#include "convert/huggingface_config.h"
#include "convert/safetensors.h"
#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"
#include "train/data/indexed_dataset.h"

namespace ms {
namespace {

using nlohmann::json;
using test::TinyLayout;

constexpr double kLossBar = 1e-5;
constexpr double kWeightBar = 1e-4;

std::string data(const std::string& name) { return core::cat(MS_TEST_DATA, "/", name); }

json read_reference(const std::string& folder) {
  return convert::read_json(data(folder) + "/reference.json", int64_t{1} << 20);
}

train::RunSummary run(const train::TrainerConfig& config, const TinyLayout& layout) {
  return test::run_on_threads(config, layout.ranks(), [](const std::filesystem::path& path, int64_t) {
    return convert::open_source(path.string());
  });
}

// Configures a run that loads a Hugging Face folder and takes the model's shape from it.
train::TrainerConfig configuration(const std::string& model, const TinyLayout& layout, const json& flags) {
  train::TrainerConfig config;
  core::ConfigFields fields = config.fields();
  std::vector<std::string> words;
  for (const auto& [name, value] : flags.items()) {
    words.push_back("--" + name);
    words.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  EXPECT_TRUE(fields.parse_flags(words).empty());
  train::take_model_from(convert::read_hf_config(model).model, fields, config);
  config.parallel.tensor_model_parallel_size = layout.tp;
  config.parallel.pipeline_model_parallel_size = layout.pp;
  config.parallel.context_parallel_size = layout.cp;
  if (layout.cp > 1) config.parallel.cp_comm_type = {layout.context};
  if (config.model.num_layers == 3 && layout.pp == 2) config.parallel.num_layer_list = {2, 1};
  config.parallel.use_distributed_optimizer = layout.zero > 0;
  config.parallel.use_megatron_fsdp = layout.zero > 1;
  if (layout.zero == 2) config.parallel.data_parallel_sharding_strategy = "optim_grads";
  config.parallel.sequence_parallel = layout.sp;
  config.checkpoint.load = model;
  config.checkpoint.finetune = true;
  config.logger.log_level = "error";
  config.logger.peak_tflops = 0.1;
  return config;
}

// Every tensor of a file as fp32, by name.
std::map<std::string, std::vector<float>> read_fp32(const std::string& path) {
  const convert::SafetensorsReader reader(path);
  std::map<std::string, std::vector<float>> tensors;
  for (size_t i = 0; i < reader.header().size(); ++i) {
    const auto tensor = reader.header()[i];
    EXPECT_EQ(tensor.dtype, convert::SafetensorsDType::kF32) << tensor.name;
    std::vector<float>& values = tensors[std::string(tensor.name)];
    values.resize((tensor.end - tensor.begin) / sizeof(float));
    reader.read(tensor.begin, std::as_writable_bytes(std::span(values)));
  }
  return tensors;
}

// Softmax is invariant to what is added to all keys: the gradient of the middle third of GPT-2's attention bias is
// rounding error only, and Adam's steps from it are arbitrary. Leave it out.
std::map<std::string, std::vector<float>> without_free_keys(std::map<std::string, std::vector<float>> tensors) {
  for (auto& [name, values] : tensors) {
    if (!name.ends_with("attn.c_attn.bias")) continue;
    const auto third = static_cast<int64_t>(values.size() / 3);
    values.erase(values.begin() + third, values.begin() + 2 * third);
  }
  return tensors;
}

// Of experts, on how many ranks they are; 0: as the rest of the model.
struct ExpertRanks {
  int ep = 1, etp = 0;
};

void expect_fifty_steps(const std::string& golden, const TinyLayout& layout, const ExpertRanks& experts = {}) {
  const json reference = read_reference(golden);
  const test::TemporaryFolder folder;
  train::TrainerConfig config = configuration(data(golden + "/hf"), layout, reference.at("flags"));
  config.training.train_iters = reference.at("steps");
  config.training.eval_iters = 0;
  config.data.train_data_path = {data(golden + "/tokens")};
  config.data.data_cache_path = folder / "cache";
  config.checkpoint.save = folder / "save";
  config.parallel.expert_model_parallel_size = experts.ep;
  if (experts.etp > 0) config.parallel.expert_tensor_parallel_size = experts.etp;
  const train::RunSummary summary = run(config, layout);

  const auto losses = reference.at("losses").get<std::vector<double>>();
  const auto norms = reference.at("grad_norms").get<std::vector<double>>();
  ASSERT_EQ(losses.size(), 50U);
  ASSERT_EQ(summary.steps.size(), losses.size());
  const auto further = reference.value("mtp_losses", std::vector<std::vector<double>>(losses.size()));
  EXPECT_LT(losses.back(), 0.9 * losses.front()) << "it must learn, or equal losses say little";
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(summary.steps[i].loss, losses[i], kLossBar * losses[i]) << "step " << i + 1;
    EXPECT_NEAR(summary.steps[i].grad_norm, norms[i], 1e-4 * norms[i]) << "step " << i + 1;
    ASSERT_EQ(summary.steps[i].mtp_losses.size(), further[i].size());
    for (size_t k = 0; k < further[i].size(); ++k)
      EXPECT_NEAR(summary.steps[i].mtp_losses[k], further[i][k], kLossBar * further[i][k]) << "step " << i + 1;
  }

  convert::ConvertOptions out;
  out.load_dir = summary.checkpoint;
  out.save_dir = folder / "trained";
  out.drop_optimizer = true;
  convert::convert_checkpoint(out);
  const auto trained = without_free_keys(read_fp32(folder / "trained/model.safetensors"));
  const auto expected = without_free_keys(read_fp32(data(golden + "/torch/model.safetensors")));
  EXPECT_LT(test::largest_distance(trained, expected), kWeightBar);
  const auto start = without_free_keys(read_fp32(data(golden + "/hf/model.safetensors")));
  EXPECT_GT(test::largest_distance(start, expected), 0.1) << "training must have moved the weights";
}

class TorchGolden : public testing::TestWithParam<std::tuple<const char*, TinyLayout>> {};

TEST_P(TorchGolden, FiftyStepsAgree) { expect_fifty_steps(std::get<0>(GetParam()), std::get<1>(GetParam())); }

TEST(TorchGoldenExperts, FiftyStepsAgreeOnSeveralRanks) {
  for (const char* name : {"mixtral_adamw", "qwen3_moe_adamw", "glm4_moe_adamw", "deepseek_v3_adamw"}) {
    SCOPED_TRACE(name);
    expect_fifty_steps(name, {1, 1, 2, true}, {.ep = 2});
    expect_fifty_steps(name, {2, 1, 2, true, true}, {.ep = 2, .etp = 1});
    expect_fifty_steps(name, {2, 1, 2, false, true}, {.ep = 2});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, TorchGolden,
    testing::Combine(testing::Values("llama_adamw", "gpt2_adamw", "llama_sgd"),
                     testing::Values(TinyLayout{}, TinyLayout{2, 1, 1, false, true}, TinyLayout{1, 2, 1},
                                     TinyLayout{1, 1, 2, true, false}, TinyLayout{1, 1, 2, 2}, TinyLayout{1, 1, 2, 3})),
    [](const auto& test) { return core::cat(std::get<0>(test.param), "_", std::get<1>(test.param).name()); });

// Experts on ranks of their own: expert_parallel_test.cpp.
const auto kLayoutsOfExperts = testing::Values(TinyLayout{}, TinyLayout{1, 2, 1}, TinyLayout{1, 1, 2, true, false},
                                               TinyLayout{2, 1, 2, true, true}, TinyLayout{1, 1, 2, 3});

INSTANTIATE_TEST_SUITE_P(
    Experts, TorchGolden,
    testing::Combine(testing::Values("mixtral_adamw", "qwen3_moe_adamw", "qwen2_moe_adamw", "glm4_moe_adamw",
                                     "deepseek_v2_adamw", "deepseek_v3_adamw", "deepseek_v3_mtp_adamw"),
                     kLayoutsOfExperts),
    [](const auto& test) { return core::cat(std::get<0>(test.param), "_", std::get<1>(test.param).name()); });

// Its norms of queries and keys, over all heads, need them on one rank.
INSTANTIATE_TEST_SUITE_P(Olmoe, TorchGolden,
                         testing::Combine(testing::Values("olmoe_adamw"),
                                          testing::Values(TinyLayout{}, TinyLayout{1, 2, 1},
                                                          TinyLayout{1, 1, 2, true, false}, TinyLayout{1, 1, 2, 3})),
                         [](const auto& test) {
                           return core::cat(std::get<0>(test.param), "_", std::get<1>(test.param).name());
                         });

// A step that is too small to change a weight: what is loaded is what is exported, byte for byte.
class ExpertsRoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(ExpertsRoundTrip, TensorsComeBackAsTheyWere) {
  const std::string golden = GetParam();
  const TinyLayout layout{1, 2, 2, true, false};
  const test::TemporaryFolder folder;
  train::TrainerConfig config = configuration(data(golden + "/hf"), layout, read_reference(golden).at("flags"));
  config.training.train_iters = 1;
  config.training.eval_iters = 0;
  config.optimizer.lr = 1e-30;
  config.data.train_data_path = {data(golden + "/tokens")};
  config.data.data_cache_path = folder / "cache";
  config.checkpoint.save = folder / "save";
  convert::ConvertOptions out;
  out.load_dir = run(config, layout).checkpoint;
  out.save_dir = folder / "back";
  out.drop_optimizer = true;
  convert::convert_checkpoint(out);
  EXPECT_EQ(read_fp32(folder / "back/model.safetensors"), read_fp32(data(golden + "/hf/model.safetensors")));
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertsRoundTrip,
                         testing::Values("mixtral_adamw", "qwen3_moe_adamw", "qwen2_moe_adamw", "glm4_moe_adamw",
                                         "deepseek_v2_adamw", "deepseek_v3_adamw", "deepseek_v3_mtp_adamw",
                                         "olmoe_adamw"));

// transformers ranks groups of experts by their best one, a run as Megatron does by a sum: it is another model.
TEST(ExpertsRoundTripErrors, AnotherRankingOfGroupsIsNotExported) {
  const test::TemporaryFolder folder;
  const auto exported = [&](bool by_best) {
    train::TrainerConfig config = test::tiny_config(folder.path());
    test::use_latent_attention(config);
    config.model.num_experts = 8;
    config.model.moe_router_topk = 4;
    config.model.moe_ffn_hidden_size = 12;
    config.model.moe_router_pre_softmax = true;
    config.model.moe_router_num_groups = 4;
    config.model.moe_router_group_topk = 2;
    config.training.first_k_dense_replace = 1;
    if (by_best) config.training.moe_router_load_balancing_type = {"group_limited_greedy"};
    config.training.train_iters = 1;
    config.checkpoint.save = folder / (by_best ? "best" : "sum");
    convert::ConvertOptions out;
    out.load_dir = run(config, {}).checkpoint;
    out.save_dir = folder / (by_best ? "hf_best" : "hf_sum");
    out.drop_optimizer = true;
    convert::convert_checkpoint(out);
    return convert::read_json((std::filesystem::path(out.save_dir) / "config.json").string(), int64_t{1} << 20);
  };
  EXPECT_EQ(exported(/*by_best=*/true).at("topk_method"), "group_limited_greedy");
  const test::Thrown thrown = test::thrown_by([&] { exported(/*by_best=*/false); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  EXPECT_NE(thrown.text.find("by the sum of their highest scores"), std::string::npos) << thrown.text;
}

class TransformersLoss : public testing::TestWithParam<std::tuple<const char*, TinyLayout>> {};

TEST_P(TransformersLoss, AgreesWithoutTraining) {
  const auto& [name, layout] = GetParam();
  const json reference = read_reference(name);
  const auto rows = reference.at("tokens").get<std::vector<std::vector<int32_t>>>();
  // A data set is one stream of tokens; rows that are not contiguous become separate data sets.
  const test::TemporaryFolder folder;
  std::vector<std::string> prefixes;
  for (const std::vector<int32_t>& row : rows) {
    prefixes.push_back(folder / core::cat("row", prefixes.size()));
    train::IndexedDatasetBuilder builder(prefixes.back(), train::TokenType::kUint16);
    builder.add_document(row);
    builder.finalize();
  }
  const json flags = {{"seq-length", rows.at(0).size() - 1}, {"global-batch-size", rows.size()}, {"eval-iters", 1}};
  train::TrainerConfig config = configuration(data(name), layout, flags);
  config.training.skip_train = true;
  config.data.valid_data_path = prefixes;
  const double expected = reference.at("loss");
  EXPECT_NEAR(run(config, layout).validation_loss, expected, kLossBar * expected);
}

INSTANTIATE_TEST_SUITE_P(
    Families, TransformersLoss,
    testing::Combine(testing::Values("hf_llama_tiny", "hf_llama_tiny_sharded", "hf_llama3_tiny", "hf_yarn_tiny",
                                     "hf_longrope_tiny", "hf_phi3_longrope_tiny", "hf_mistral_tiny", "hf_qwen2_tiny",
                                     "hf_qwen3_tiny", "hf_gemma2_tiny", "hf_gemma3_text_tiny", "hf_phi3_tiny",
                                     "hf_glm_tiny", "hf_glm4_tiny", "hf_gpt2_tiny", "hf_starcoder2_tiny",
                                     "hf_smollm3_tiny", "hf_ernie4_5_tiny", "hf_internlm2_tiny", "hf_nemotron_tiny",
                                     "hf_llama_biased_tiny", "hf_qwen3_biased_tiny"),
                     testing::Values(TinyLayout{}, TinyLayout{2, 1, 1, false, true}, TinyLayout{1, 2, 1})),
    [](const auto& test) { return core::cat(std::get<0>(test.param), "_", std::get<1>(test.param).name()); });

// Windows in all layers, in every second one, and in two of three with angles of their own, where ranks share
// sequences.
INSTANTIATE_TEST_SUITE_P(Windows, TransformersLoss,
                         testing::Combine(testing::Values("hf_mistral_tiny", "hf_gemma2_tiny", "hf_gemma3_text_tiny"),
                                          testing::Values(TinyLayout{1, 1, 1, 0, false, 1, "", "", 2, "a2a"},
                                                          TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "all_gather"},
                                                          TinyLayout{1, 1, 1, 0, false, 1, "", "", 4, "p2p"},
                                                          TinyLayout{2, 1, 1, 0, true, 1, "", "", 2, "p2p"})),
                         [](const auto& test) {
                           return core::cat(std::get<0>(test.param), "_", std::get<1>(test.param).name());
                         });

INSTANTIATE_TEST_SUITE_P(
    Experts, TransformersLoss,
    testing::Combine(testing::Values("hf_mixtral_tiny", "hf_mixtral_tiny_packed", "hf_qwen3_moe_tiny",
                                     "hf_qwen3_moe_tiny_sharded", "hf_qwen2_moe_tiny", "hf_deepseek_v2_tiny"),
                     kLayoutsOfExperts),
    [](const auto& test) { return core::cat(std::get<0>(test.param), "_", std::get<1>(test.param).name()); });

INSTANTIATE_TEST_SUITE_P(Olmoe, TransformersLoss,
                         testing::Combine(testing::Values("hf_olmoe_tiny"),
                                          testing::Values(TinyLayout{}, TinyLayout{1, 2, 1})),
                         [](const auto& test) {
                           return core::cat(std::get<0>(test.param), "_", std::get<1>(test.param).name());
                         });

// The text grows beyond the original length, where longrope has other frequencies, of all its positions.
class TransformersText : public testing::TestWithParam<TinyLayout> {};

TEST_P(TransformersText, LongropeContinuesBeyondTheOriginalLength) {
  const char* const name = "hf_phi3_longrope_tiny";
  constexpr size_t kPrompt = 4;  // as make_hf_tiny.py
  const auto ids = read_reference(name).at("text").get<std::vector<int32_t>>();
  ASSERT_GT(ids.size(), 8U) << "the original length";
  std::string prompt, text;
  for (size_t i = 0; i < ids.size(); ++i) {
    text += core::cat(text.empty() ? "" : " ", ids[i]);
    if (i + 1 == kPrompt) prompt = text;
  }
  train::TrainerConfig config = configuration(data(name), GetParam(), json::object());
  config.data.tokenizer_type = "NullTokenizer";
  config.model.vocab_size = 66;  // and an end of document: the model's 67
  config.generate.generate = prompt;
  config.generate.num_tokens_to_generate = static_cast<int64_t>(ids.size() - kPrompt);
  config.generate.temperature = 0;
  EXPECT_EQ(run(config, GetParam()).generated, text);
}

INSTANTIATE_TEST_SUITE_P(Layouts, TransformersText, testing::Values(TinyLayout{}, TinyLayout{1, 2, 1}),
                         [](const auto& test) { return test.param.name(); });

// A data set made for a larger vocabulary: its ids must not reach the embedding table.
TEST(TransformersLossErrors, IdAboveTheVocabularyIsRefused) {
  const test::TemporaryFolder folder;
  train::IndexedDatasetBuilder builder(folder / "row", train::TokenType::kUint16);
  builder.add_document(std::vector<int32_t>{1, 2, 67});
  builder.finalize();
  train::TrainerConfig config =
      configuration(data("hf_llama_tiny"), {}, {{"seq-length", 2}, {"global-batch-size", 1}, {"eval-iters", 1}});
  config.training.skip_train = true;
  config.data.valid_data_path = {folder / "row"};
  try {
    run(config, {});
    FAIL() << "id 67 of 67 passed";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData) << error.what();
  }
}

}  // namespace
}  // namespace ms
