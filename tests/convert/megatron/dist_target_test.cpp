// Our torch_dist checkpoints: compared with one of megatron-core, in other layouts, from and to other formats, with
// disk faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "convert/convert.h"
#include "convert/megatron_dist.h"
#include "convert/torch/dcp_reader.h"
#include "core/error.h"
#include "tests/convert/conversions.h"
#include "tests/convert/megatron/check_values.h"
#include "tests/support/files_of.h"
#include "tests/support/killed.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::ErrorCode;
using test::check_all_values;
using test::files_of;
using test::read_file;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string data(const std::string& name) { return core::cat(MS_TEST_DATA, "/", name); }

std::unique_ptr<ckpt::Source> open(const std::string& path) { return open_source(path); }

ConvertOptions to_dist(const std::string& from, const std::string& to, int tp = 1, int pp = 1,
                       int64_t layers_per_chunk = 0) {
  ConvertOptions options;
  options.load_dir = from;
  options.save_dir = to;
  options.save_model_type = Format::kMegatronDist;
  options.target_tensor_parallel_size = tp;
  options.target_pipeline_parallel_size = pp;
  options.num_layers_per_virtual_pipeline_stage = layers_per_chunk;
  return options;
}

struct Layout {
  const char* tree;
  int tp, pp;
  int64_t layers_per_chunk;
  bool distributed;
  int ep = 1, etp = 0;  // 0: TP
  bool extended = false;
};

class DistLayoutTest : public ::testing::TestWithParam<Layout> {};

TEST_P(DistLayoutTest, EveryElementIsInItsPlace) {
  const Layout& layout = GetParam();
  const test::TemporaryFolder folder;
  const std::string from = data(core::cat("megatron/", layout.tree));
  const auto original = open(from);
  const auto wanted = check_all_values(*original);
  ConvertOptions options = to_dist(from, folder / "dist", layout.tp, layout.pp, layout.layers_per_chunk);
  options.use_distributed_optimizer = layout.distributed;
  options.target_expert_parallel_size = layout.ep;
  if (layout.etp > 0) options.expert_tensor_parallel_size = layout.etp;
  options.moe_tp_extend_ep = layout.extended;
  EXPECT_EQ(convert_checkpoint(options).path, folder / "dist/iter_0000007");
  EXPECT_EQ(read_file(folder / "dist/latest_checkpointed_iteration.txt"), "7");
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder / "dist/iter_0000007")) {
    files += entry.path().extension() == ".distcp" ? 1 : 0;
  }
  const int etp = layout.etp > 0 ? layout.etp : layout.tp;
  const int ranks = layout.extended ? layout.ep * layout.tp : std::max(layout.tp, layout.ep * etp);
  EXPECT_EQ(files, static_cast<size_t>(ranks * layout.pp)) << "one for each rank that has something of its own";
  const auto made = open(folder / "dist");
  EXPECT_EQ(check_all_values(*made), wanted);
  EXPECT_EQ(made->info().model, original->info().model);
  EXPECT_EQ(made->info().iteration, 7);
  EXPECT_EQ(made->info().common, original->info().common) << "samples, step, schedule";

  // Through a native checkpoint of another layout and back: the same bytes.
  ConvertOptions native;
  native.load_dir = folder / "dist";
  native.save_dir = folder / "ms";
  native.target_tensor_parallel_size = 2;
  convert_checkpoint(native);
  options.load_dir = folder / "ms";
  options.save_dir = folder / "again";
  convert_checkpoint(options);
  EXPECT_TRUE(files_of(folder / "again") == files_of(folder / "dist"));
}

INSTANTIATE_TEST_SUITE_P(
    Trees, DistLayoutTest,
    ::testing::Values(Layout{"swiglu_tp2_pp2_distributed", 4, 3, 0, true},
                      Layout{"swiglu_tp2_pp2_distributed", 1, 1, 0, false},
                      Layout{"tied_pp2_distributed", 2, 2, 0, true}, Layout{"gelu_vpp2_fp32", 1, 2, 1, true},
                      Layout{"gelu_vpp2_fp32", 2, 4, 0, false}, Layout{"qk_norm_tp2_bf16", 2, 1, 0, true},
                      Layout{"moe_tp2_ep2", 2, 1, 0, false, 2}, Layout{"moe_tp2_ep2", 1, 1, 0, true, 4, 3},
                      Layout{"moe_ep2_distributed", 2, 2, 0, true, 2, 1},
                      Layout{"moe_ep2_distributed", 2, 1, 0, false, 2, 0, true},
                      Layout{"moe_latent_tp2_ep2_etp1", 2, 1, 0, true, 2, 2}),
    [](const auto& test) {
      const Layout& l = test.param;
      return core::cat(l.tree, "_to_tp", l.tp, "_pp", l.pp, l.layers_per_chunk > 0 ? "_virtual" : "",
                       l.distributed ? "_distributed" : "", l.ep > 1 ? core::cat("_ep", l.ep) : "",
                       l.etp > 0 ? core::cat("_etp", l.etp) : "", l.extended ? "_extended" : "");
    });

// Compares every tensor, box by box, and every object.
void expect_as_megatron_wrote(const std::string& genuine_folder, const ConvertOptions& options) {
  const ConvertReport report = convert_checkpoint(options);
  const DcpReader genuine(genuine_folder), ours(report.path);
  const auto boxes = [](const DcpReader::Tensor& tensor) {
    std::set<std::pair<core::Dims, core::Dims>> all;
    for (const DcpReader::Chunk& chunk : tensor.chunks) all.emplace(chunk.offset, chunk.extent);
    return all;
  };
  ASSERT_EQ(ours.tensors().size(), genuine.tensors().size());
  for (const auto& [key, tensor] : genuine.tensors()) {
    SCOPED_TRACE(key);
    const auto found = ours.tensors().find(key);
    ASSERT_NE(found, ours.tensors().end());
    EXPECT_EQ(found->second.dtype, tensor.dtype);
    EXPECT_EQ(found->second.shape, tensor.shape);
    EXPECT_EQ(boxes(found->second), boxes(tensor));
  }
  std::set<std::string> genuine_objects, our_objects;
  for (const auto& [key, payload] : genuine.objects()) genuine_objects.insert(key);
  for (const auto& [key, payload] : ours.objects()) {
    our_objects.insert(key);
    const TorchFile file = ours.open_object(payload);
    ASSERT_TRUE(file.root().is(PickleKind::kList)) << key;
    EXPECT_TRUE(file.root().items().at(0).is(PickleKind::kNone));
  }
  EXPECT_EQ(our_objects, genuine_objects);
  EXPECT_EQ(read_file(report.path + "/metadata.json"), read_file(genuine_folder + "/metadata.json"));
  const TorchFile genuine_common(genuine_folder + "/common.pt"), common(report.path + "/common.pt");
  for (const char* key : {"args", "iteration", "checkpoint_version", "optimizer"}) {
    EXPECT_TRUE(genuine_common.root().find(key)) << key;
    EXPECT_TRUE(common.root().find(key)) << key;
  }
  EXPECT_EQ(common.root().find("content_metadata")->find("distrib_optim_sharding_type")->text(), "fully_reshardable");
}

TEST(DistTargetTest, SameLayoutEqualsMegatronsCheckpoint) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_dist(data("megatron_dist"), folder / "dist", 2, 2);
  options.use_distributed_optimizer = true;
  options.target_norm_naming = MegatronNaming::kLocal;
  expect_as_megatron_wrote(data("megatron_dist/iter_0000003"), options);
}

TEST(DistTargetTest, SameLayoutPlacesExpertsAsMegatron) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_dist(data("megatron_dist_experts/moe_ep2_distributed"), folder / "dist");
  options.target_expert_parallel_size = 2;
  options.use_distributed_optimizer = true;
  options.target_norm_naming = MegatronNaming::kLocal;
  expect_as_megatron_wrote(data("megatron_dist_experts/moe_ep2_distributed/iter_0000007"), options);
}

TEST(DistTargetTest, TransformerEngineModulesHaveExtraState) {
  const test::TemporaryFolder folder;
  const ConvertReport report = convert_checkpoint(to_dist(data("megatron/qk_norm_tp2_bf16"), folder / "dist"));
  const DcpReader reader(report.path);
  for (const char* key : {"decoder.final_layernorm._extra_state/shard_0_1",
                          "decoder.layers.self_attention.core_attention._extra_state/shard_0_1",
                          "decoder.layers.self_attention.q_layernorm._extra_state/shard_0_1",
                          "decoder.layers.mlp.linear_fc2._extra_state/shard_0_1"}) {
    EXPECT_TRUE(reader.objects().contains(key)) << key;
  }
  EXPECT_EQ(reader.objects().size(), 8u);
}

TEST(DistTargetTest, HuggingFaceIsByteIdenticalAfterTwoConversions) {
  const test::TemporaryFolder folder;
  for (const char* model : {"hf_llama_tiny_sharded", "hf_gpt2_tiny", "hf_gemma2_tiny"}) {
    SCOPED_TRACE(model);
    const std::string at = folder / model;
    const ConvertReport made = convert_checkpoint(to_dist(data(model), at + "/dist", 2, 2));
    EXPECT_EQ(made.path, at + "/dist/release");
    EXPECT_EQ(read_file(at + "/dist/latest_checkpointed_iteration.txt"), "release");
    EXPECT_THAT(made.decisions,
                Contains(HasSubstr("the vocabulary of 67 rows is padded with 189 rows of zeros to 256")));
    ConvertOptions second = to_dist(at + "/dist", at + "/dist2", 4, 1);
    second.make_vocab_size_divisible_by = 64;  // the last rank has only padding
    convert_checkpoint(second);
    EXPECT_EQ(open(at + "/dist2")->info().model.vocab_size, 67);
    test::expect_folder_comes_back(at + "/dist2", data(model), at + "/hf");
  }
}

TEST(DistTargetTest, DecisionsAreReported) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_dist(data("megatron/tied_pp2_distributed"), folder / "dist", 1, 2);
  options.use_distributed_optimizer = true;
  options.mg_args = MegatronArgsForm::kOmit;
  options.dry_run = true;
  const ConvertReport report = convert_checkpoint(options);
  for (const char* said : {"padded with 3 rows of zeros to 24", "fully_reshardable", "--target-norm-naming local",
                           "--no-load-rng", "args are left out"}) {
    EXPECT_THAT(report.decisions, Contains(HasSubstr(said)));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(DistTargetTest, DropOptimizerLeavesOutOptimizerState) {
  const test::TemporaryFolder folder;
  ConvertOptions options = to_dist(data("megatron/qk_norm_tp2_bf16"), folder / "dist");
  options.drop_optimizer = true;
  const ConvertReport report = convert_checkpoint(options);
  EXPECT_THAT(report.decisions, Contains(HasSubstr("optimizer state is left out")));
  EXPECT_FALSE(TorchFile(report.path + "/common.pt").root().find("optimizer"));
  const auto made = open(folder / "dist");
  EXPECT_FALSE(ckpt::has_role(*made, core::TensorRole::kExpAvg));
}

TEST(DistTargetTest, ExistingIterationIsRefused) {
  const test::TemporaryFolder folder;
  const ConvertOptions options = to_dist(data("megatron/qk_norm_tp2_bf16"), folder / "dist");
  convert_checkpoint(options);
  const auto before = files_of(folder / "dist");
  const test::Thrown thrown = test::thrown_by([&] { convert_checkpoint(options); });
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("iter_0000007 already exists"));
  EXPECT_TRUE(files_of(folder / "dist") == before);
}

TEST(DistTargetTest, DiskFaultLeavesNothingAndTheOldCheckpointReadable) {
  const test::TemporaryFolder folder;
  convert_checkpoint(to_dist(data("hf_llama_tiny"), folder / "dist"));
  const auto before = files_of(folder / "dist");
  const ConvertOptions options = to_dist(data("megatron/tied_pp2_distributed"), folder / "dist", 1, 2);
  test::expect_survives_disk_errors(options, [&] {
    if (fs::exists(folder / "dist/iter_0000007")) {  // complete; if only the tracker failed, it is the old one
      EXPECT_FALSE(check_all_values(*open(folder / "dist/iter_0000007")).empty());
      fs::remove_all(folder / "dist/iter_0000007");
      test::write_file(folder / "dist/latest_checkpointed_iteration.txt", "release");
    }
    ASSERT_TRUE(files_of(folder / "dist") == before);
  });
}

// At any moment a checkpoint under its final name is complete, and the tracker names an existing one.
TEST(DistTargetTest, KillLeavesNothingOrACompleteCheckpoint) {
  int nth = 0, whole = 0;
  for (bool through = false; !through; nth += 1 + nth / 4) {
    SCOPED_TRACE(nth);
    const test::TemporaryFolder folder;
    const ConvertOptions options = to_dist(data("megatron/qk_norm_tp2_bf16"), folder / "dist");
    through = test::survives(nth, [&] { convert_checkpoint(options); });
    if (fs::exists(folder / "dist/iter_0000007")) {
      ++whole;
      EXPECT_FALSE(check_all_values(*open(folder / "dist/iter_0000007")).empty());
    } else {
      EXPECT_FALSE(through);
    }
    if (fs::exists(folder / "dist/latest_checkpointed_iteration.txt")) {
      EXPECT_FALSE(check_all_values(*open(folder / "dist")).empty());
    }
    ASSERT_LT(nth, 10'000);
  }
  EXPECT_GT(nth, 30) << "there are more calls than that";
  EXPECT_GT(whole, 0);
}

TEST(DistTargetTest, InterruptLeavesNothing) {
  const test::TemporaryFolder folder;
  test::expect_stop_leaves_nothing(to_dist(data("megatron/qk_norm_tp2_bf16"), folder / "dist"), folder.path());
}

}  // namespace
}  // namespace ms::convert
