// A torch_dist checkpoint of megatron-core: every element of weights and optimizer state, and what is refused.
#include "convert/megatron_dist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "convert/detect.h"
#include "convert/tensor_file.h"
#include "core/error.h"
#include "core/layout/parameter_specs.h"
#include "tests/convert/megatron/check_values.h"
#include "tests/convert/whole_tensor.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::TensorRole;
using testing::Contains;
using testing::HasSubstr;

// Made by tests/data/make_megatron_dist.py: TP 2 PP 2, a vocabulary of 29 padded to 32.
std::string data_folder() { return core::cat(MS_TEST_DATA, "/megatron_dist"); }
constexpr const char* kIteration = "iter_0000003";

TEST(DistSourceTest, EqualsWhatMegatronReads) {
  std::vector<std::string> decisions;
  const auto source = open_megatron_dist(core::cat(data_folder(), "/", kIteration), {}, decisions);
  EXPECT_EQ(source->info().iteration, 3);
  EXPECT_EQ(source->info().model.vocab_size, 29);
  EXPECT_EQ(source->info().model.num_layers, 2);
  EXPECT_EQ(source->info().common.at("consumed_train_samples"), 24);
  EXPECT_EQ(source->info().common.at("step"), 1) << "of its optimizer";
  EXPECT_EQ(source->info().layout, nlohmann::json({{"tp", 2}, {"pp", 2}, {"dp", 1}})) << "what its args say";
  EXPECT_THAT(decisions, Contains(HasSubstr("3 of 32 vocabulary rows are padding")));
  const auto expected = open_safetensors(core::cat(data_folder(), "/expected.safetensors"));
  EXPECT_EQ(expected->size(), source->shards().num_tensors());
  for (size_t i = 0; i < expected->size(); ++i) {
    const TensorFile::Tensor tensor = (*expected)[i];
    const size_t colon = tensor.name.find(':');
    const std::string role(tensor.name.substr(0, colon)), key(tensor.name.substr(colon + 1));
    std::vector<std::byte> bytes(tensor.end - tensor.begin);
    expected->read(tensor.begin, bytes);
    if (key == "embedding.word_embeddings.weight" || key == "output_layer.weight") bytes.resize(bytes.size() / 32 * 29);
    EXPECT_EQ(test::whole_tensor(*source, key, core::parse_role(role)), bytes) << tensor.name;
  }
}

// Stacked over layers and experts; and with separate keys for each expert and each half of linear_fc1.
TEST(DistSourceTest, ExpertsWithBothKindsOfKeysAreRead) {
  for (const char* name : {"moe_ep2_distributed", "moe_latent_tp2_ep2_etp1"}) {
    SCOPED_TRACE(name);
    const auto source = open_source(core::cat(MS_TEST_DATA, "/megatron_dist_experts/", name));
    const bool has_state = std::string_view(name) == "moe_ep2_distributed";
    size_t tensors = 0;
    for (const layout::ParameterSpec& spec : layout::parameter_specs(source->info().model)) {
      tensors += has_state && !spec.is_buffer ? 4 : 1;
    }
    EXPECT_EQ(test::check_all_values(*source).size(), tensors);
    EXPECT_EQ(source->info().model.num_experts, 2);
    EXPECT_EQ(source->info().layout.at("ep"), 2);
    EXPECT_EQ(source->info().iteration, 7);
  }
}

TEST(DistSourceTest, UnknownExpertTensorsAreRefused) {
  for (const auto& [from, to] : {std::pair("mlp.experts.experts.0.", "mlp.experts.experts.9."),
                                 std::pair("linear_fc1.weight_w", "linear_fc2.weight_w")}) {
    const test::TemporaryFolder folder;
    fs::copy(core::cat(MS_TEST_DATA, "/megatron_dist_experts/moe_latent_tp2_ep2_etp1/iter_0000007"), folder.path(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    std::string metadata = test::read_file(folder / ".metadata");
    for (size_t at = 0; (at = metadata.find(from, at)) != std::string::npos; ++at) {
      metadata.replace(at, std::string_view(to).size(), to);
    }
    test::write_file(folder / ".metadata", metadata);
    std::vector<std::string> decisions;
    const auto thrown = test::thrown_by([&] { open_megatron_dist(folder.path().string(), {}, decisions); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr("is not part of the model"));
  }
}

TEST(DistSourceTest, TrueVocabSizeKeepsMoreRows) {
  std::vector<std::string> decisions;
  const std::string path = core::cat(data_folder(), "/", kIteration);
  EXPECT_EQ(open_megatron_dist(path, {.true_vocab_size = 31}, decisions)->info().model.vocab_size, 31);
  EXPECT_EQ(test::thrown_by([&] { open_megatron_dist(path, {.true_vocab_size = 33}, decisions); }).code,
            core::ErrorCode::kInvalidArgument);
}

// Made by tests/data/make_megatron_dist_kinds.py: the value of each element encodes its position.
std::string kind_folder(const std::string& name) {
  return core::cat(MS_TEST_DATA, "/megatron_dist_kinds/", name, "/iter_0000007");
}

TEST(DistSourceTest, EveryKindOfOptimizerStateIsRead) {
  for (const char* name :
       {"buckets_tied_pp2", "buckets_moe_ep2", "buckets_tp2_pp2", "model_space_tp2", "model_space_moe_ep2"}) {
    SCOPED_TRACE(name);
    std::vector<std::string> decisions;
    const auto source = open_megatron_dist(kind_folder(name), {}, decisions);
    size_t tensors = 0;
    for (const layout::ParameterSpec& spec : layout::parameter_specs(source->info().model)) {
      tensors += spec.is_buffer ? 1 : 4;
    }
    EXPECT_EQ(test::check_all_values(*source).size(), tensors);
    EXPECT_EQ(source->info().iteration, 7);
    EXPECT_EQ(source->info().common.at("step"), 3) << "of its optimizer";
  }
}

// A copy of a checkpoint whose .metadata a test modifies.
class ChangedDist : public testing::Test {
 protected:
  void take(const std::string& from) {
    fs::copy(from, folder_.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  // Replaces all occurrences; both have the same length.
  void replace(std::string_view from, std::string_view to, const char* file = ".metadata") {
    std::string text = test::read_file(folder_ / file);
    ASSERT_EQ(from.size(), to.size());
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, to.size(), to);
    }
    test::write_file(folder_ / file, text);
  }
  void expect(core::ErrorCode code, const std::string& part) {
    std::vector<std::string> decisions;
    const auto thrown = test::thrown_by([&] { open_megatron_dist(folder_.path().string(), {}, decisions); });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(part));
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos);
  }
  const test::TemporaryFolder folder_;
};

// The kind dp_zero_gather_scatter: its state is an object, which must not be dropped silently.
TEST_F(ChangedDist, StateInOneObjectIsRefused) {
  take(kind_folder("buckets_tied_pp2"));
  replace("dp_group_idx_1.optimizer/shard", "dp_group_idx.param_state/shard");
  expect(core::ErrorCode::kUnsupported, "dp_zero_gather_scatter is not supported; --drop-optimizer leaves it out");
}

// A rank's part, cut inside a parameter: other lengths of the flat axis.
TEST_F(ChangedDist, FlatPartsOfAnotherModelAreRefused) {
  take(kind_folder("model_space_tp2"));
  replace("nd_reformulated_orig_global_shape", "nd_reformulated_orig_global_shapx");
  std::vector<std::string> decisions;  // shapes come from the model: Megatron's record of them is not needed
  EXPECT_NO_THROW(open_megatron_dist(folder_.path().string(), {}, decisions));
  replace("optimizer.state.exp_avg.output_layer.weight", "optimizer.state.exp_avg.decoder.final_xxxxx");
  expect(core::ErrorCode::kUnsupported, "is not part of the model");
}

// megatron-core 0.16 writes other parameters' elements for parameters in buckets after one that it has filled up.
TEST_F(ChangedDist, MastersOfOtherWeightsAreRefused) {
  take(core::cat(data_folder(), "/", kIteration));
  const auto expected = open_safetensors(core::cat(data_folder(), "/expected.safetensors"));
  const auto tensor = expected->find("master:decoder.layers.1.mlp.linear_fc2.weight");
  ASSERT_TRUE(tensor);
  std::vector<std::byte> bytes((*expected)[*tensor].end - (*expected)[*tensor].begin);
  expected->read((*expected)[*tensor].begin, bytes);
  const std::string last(reinterpret_cast<const char*>(bytes.data() + bytes.size() - 8), 8);
  size_t changed = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    std::string text = test::read_file(entry.path().string());
    const size_t at = text.find(last);
    if (entry.path().extension() != ".distcp" || at == std::string::npos) continue;
    text[at + 7] = static_cast<char>(text[at + 7] ^ 0x80);  // the sign of the last
    test::write_file(entry.path().string(), text);
    ++changed;
  }
  ASSERT_EQ(changed, 1u);
  expect(core::ErrorCode::kCorruptData,
         "decoder.layers.1.mlp.linear_fc2.weight: a master weight does not round to the weight");
  std::vector<std::string> decisions;
  EXPECT_NO_THROW(open_megatron_dist(folder_.path().string(), {.drop_optimizer = true}, decisions));
}

TEST_F(ChangedDist, UnsupportedStateNeedsDropOptimizer) {
  take(core::cat(data_folder(), "/", kIteration));
  replace("optimizer.state.", "optimizer.other.");
  expect(core::ErrorCode::kUnsupported, "--drop-optimizer");
  std::vector<std::string> decisions;
  const auto source = open_megatron_dist(folder_.path().string(), {.drop_optimizer = true}, decisions);
  EXPECT_EQ(source->shards().num_tensors(), 15u) << "weights";
  EXPECT_THAT(decisions, Contains("optimizer state is left out"));
}

TEST(DistSourceTest, MissingArgsAreRefused) {
  const test::TemporaryFolder folder;
  fs::copy(core::cat(data_folder(), "/", kIteration), folder.path(),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  fs::remove(folder / "common.pt");
  std::vector<std::string> decisions;
  const auto thrown = test::thrown_by([&] { open_megatron_dist(folder.path().string(), {}, decisions); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("common.pt"));
}

}  // namespace
}  // namespace ms::convert
