// A torch_dist checkpoint of megatron-core: every element of weights and optimizer state, and what is refused.
#include "convert/megatron_dist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "ckpt/layout.h"
#include "convert/detect.h"
#include "convert/tensor_file.h"
#include "core/error.h"
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

TEST(DistSourceTest, AllThatMegatronReadsInIt) {
  std::vector<std::string> decisions;
  const auto source = open_megatron_dist(core::cat(data_folder(), "/", kIteration), {}, decisions);
  EXPECT_EQ(source->info().iteration, 3);
  EXPECT_EQ(source->info().model.vocab_size, 29);
  EXPECT_EQ(source->info().model.num_layers, 2);
  EXPECT_EQ(source->info().common.at("consumed_train_samples"), 24);
  EXPECT_EQ(source->info().common.at("step"), 1) << "of its optimizer";
  EXPECT_THAT(decisions, Contains(HasSubstr("last 3 of 32 rows")));
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

// Stacked over layers and experts; and with keys for each expert and each half of linear_fc1.
TEST(DistSourceTest, ExpertsOfBothKindsOfKeys) {
  for (const char* name : {"moe_ep2_distributed", "moe_latent_tp2_ep2_etp1"}) {
    SCOPED_TRACE(name);
    const auto source = open_source(core::cat(MS_TEST_DATA, "/megatron_dist_experts/", name));
    const bool has_state = std::string_view(name) == "moe_ep2_distributed";
    size_t tensors = 0;
    for (const ckpt::ParameterSpec& spec : ckpt::parameter_specs(source->info().model)) {
      tensors += has_state && !spec.is_buffer ? 4 : 1;
    }
    EXPECT_EQ(test::check_all_values(*source).size(), tensors);
    EXPECT_EQ(source->info().model.num_experts, 2);
    EXPECT_EQ(source->info().iteration, 7);
  }
}

TEST(DistSourceTest, ExpertsThatNoModelHas) {
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
    EXPECT_THAT(thrown.text, HasSubstr("belongs to no part of the model"));
  }
}

TEST(DistSourceTest, MoreOfTheVocabularyIfAsked) {
  std::vector<std::string> decisions;
  const std::string path = core::cat(data_folder(), "/", kIteration);
  EXPECT_EQ(open_megatron_dist(path, {.true_vocab_size = 31}, decisions)->info().model.vocab_size, 31);
  EXPECT_EQ(test::thrown_by([&] { open_megatron_dist(path, {.true_vocab_size = 33}, decisions); }).code,
            core::ErrorCode::kInvalidArgument);
}

TEST(DistSourceTest, StateOfAnotherKindIsLeftOutIfAskedOnly) {
  const test::TemporaryFolder folder;
  fs::copy(core::cat(data_folder(), "/", kIteration), folder.path(),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  std::string metadata = test::read_file(folder / ".metadata");
  const std::string by_parameter = "optimizer.state.", other = "optimizer.distr.";
  for (size_t at = 0; (at = metadata.find(by_parameter, at)) != std::string::npos;) {
    metadata.replace(at, other.size(), other);
  }
  test::write_file(folder / ".metadata", metadata);
  std::vector<std::string> decisions;
  const auto thrown = test::thrown_by([&] { open_megatron_dist(folder.path().string(), {}, decisions); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, HasSubstr("--drop-optimizer"));
  const auto source = open_megatron_dist(folder.path().string(), {.drop_optimizer = true}, decisions);
  EXPECT_EQ(source->shards().num_tensors(), 15u) << "weights";
  EXPECT_THAT(decisions, Contains("optimizer state is left out"));
}

TEST(DistSourceTest, WithoutArgsThereIsNoModel) {
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
