// Random walks A -> B -> C -> A through the layouts give the original bytes: dense models, and mixtures of experts with
// latent attention, whose checkpoints are generated here. 300 walks, 3,000 in `nightly`; every element identifies its
// position.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <tuple>

#include "ckpt/plan.h"
#include "ckpt/reshard.h"
#include "ckpt/shard_list.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT
using ms::test::read_file;

core::TransformerConfig walk_model(std::mt19937_64& random) {
  auto config = small_model(random() % 2 == 0 ? 17 : 31, random() % 2 == 0, 16);
  config.num_layers = 4;
  config.ffn_hidden_size = 16;
  config.kv_channels = 4;
  config.num_query_groups = random() % 2 == 0 ? 2 : 4;
  config.swiglu = random() % 4 != 0;
  return config;
}

// The parameters of a dense model, or of one with experts and latent attention in all layers but the first.
std::vector<layout::ParameterSpec> specs_of(const core::TransformerConfig& config, bool experts) {
  std::vector<layout::ParameterSpec> specs;
  constexpr int64_t kExperts = 4;
  const auto add = [&](const std::string& key, const core::Dims& shape) {
    auto spec = layout::parameter_spec_of(key, shape, config);
    EXPECT_TRUE(spec) << key;
    if (spec->expert >= 0) spec->num_experts = kExperts;
    specs.push_back(std::move(*spec));
  };
  for (layout::ParameterSpec& spec : layout::parameter_specs(config)) {
    if (!experts || spec.layer < 1 || spec.layer >= config.num_layers) {
      specs.push_back(std::move(spec));
    } else if (spec.key.find("linear_qkv.layer_norm_weight") != std::string::npos) {  // once per layer
      const std::string layer = core::cat("decoder.layers.", spec.layer, ".");
      const int64_t gates = config.gated() ? 2 : 1;
      add(layer + "input_layernorm.weight", {16});
      add(layer + "self_attention.linear_q_down_proj.weight", {6, 16});
      add(layer + "self_attention.linear_q_up_proj.weight", {24, 6});
      add(layer + "self_attention.linear_kv_down_proj.weight", {7, 16});
      add(layer + "self_attention.linear_kv_up_proj.weight", {32, 5});
      add(layer + "self_attention.linear_proj.weight", {16, 16});
      add(layer + "pre_mlp_layernorm.weight", {16});
      add(layer + "mlp.router.weight", {kExperts, 16});
      add(layer + "mlp.router.expert_bias", {kExperts});
      add(layer + "mlp.shared_experts.linear_fc1.weight", {8 * gates, 16});
      add(layer + "mlp.shared_experts.linear_fc2.weight", {16, 8});
      for (int64_t expert = 0; expert < kExperts; ++expert) {
        const std::string prefix = core::cat(layer, "mlp.experts.local_experts.", expert, ".");
        add(prefix + "linear_fc1.weight", {8 * gates, 16});
        add(prefix + "linear_fc2.weight", {16, 8});
      }
    }
  }
  if (experts) {  // the order of plan_reshard
    std::sort(specs.begin(), specs.end(), [](const layout::ParameterSpec& a, const layout::ParameterSpec& b) {
      return std::tie(a.layer, a.expert, a.key) < std::tie(b.layer, b.expert, b.key);
    });
  }
  return specs;
}

layout::ModelLayout random_layout(std::mt19937_64& random, const core::TransformerConfig& config, bool experts) {
  const auto one_of = [&](std::initializer_list<int> values) { return *(values.begin() + random() % values.size()); };
  while (true) {
    layout::ModelLayout layout{one_of({1, 2, 4}), one_of({1, 1, 2, 3, 4}), one_of({1, 2, 3}), one_of({0, 1, 2, 3})};
    if (experts) {
      layout.expert_model_parallel_size = one_of({1, 2, 4});
      layout.expert_tensor_parallel_size = one_of({1, 1, 2});
    }
    const int pp = layout.pipeline_model_parallel_size;
    if (pp == 2) {
      layout.virtual_pipeline_model_parallel_size = one_of({1, 2});
      if (random() % 2 == 0) {
        layout.num_layer_list = layout.virtual_pipeline_model_parallel_size == 2 ? std::vector<int64_t>{1, 1, 1, 1}
                                                                                 : std::vector<int64_t>{1, 3};
      }
    }
    if (pp == 3) layout.num_layer_list = {1, 2, 1};
    if (layout.world_size() > 12) continue;
    try {
      layout::validate_layout(layout, config);
      return layout;
    } catch (const core::Error&) {
      continue;
    }
  }
}

fs::path write(Source& source, const fs::path& root, const CheckpointInfo& info, const layout::ModelLayout& layout,
               const ShardList& list, int threads, const ExpectedHash& expected, bool compress) {
  NativeSinkOptions sink;
  sink.root = root;
  sink.rank_of_target = list.ranks;
  sink.num_ranks = layout.world_size();
  sink.expected_logical_xxh3 = expected;
  sink.compress = compress;
  ExecuteOptions options;
  options.threads = threads;
  return execute(source, *make_native_sink(std::move(sink)), info, list.shards, options).path;
}

fs::path reshard(const fs::path& from, const fs::path& root, const layout::ModelLayout& layout, std::mt19937_64& random,
                 bool compress) {
  const auto source = open_native(from);
  const ReshardPlan plan = plan_reshard(*source, layout, {});
  return write(*source, root, plan.info, layout, plan.targets, 1 + static_cast<int>(random() % 2),
               hashes_to_keep(*source), compress);
}

TEST(Walks, RestoreAllBytes) {
  if (fs::is_directory("/dev/shm") && std::getenv("TMPDIR") == nullptr) ::setenv("TMPDIR", "/dev/shm", 1);
  const char* seed_text = std::getenv("MS_TEST_SEED");
  const uint64_t seed = seed_text != nullptr ? std::strtoull(seed_text, nullptr, 10) : 20261121;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const int walks = std::getenv("MS_NIGHTLY") != nullptr ? 3000 : 300;
  for (int walk = 0; walk < walks; ++walk) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(walk));
    const bool experts = walk % 2 == 1;
    const auto config = walk_model(random);
    const auto specs = specs_of(config, experts);
    const core::TensorRole kRoles[] = {core::TensorRole::kParam, core::TensorRole::kMaster, core::TensorRole::kExpAvg,
                                       core::TensorRole::kExpAvgSq, core::TensorRole::kBuffer};
    const auto dtype_of = [&](size_t spec, core::TensorRole role) -> std::optional<core::DType> {
      const bool buffer = specs[spec].key.find("expert_bias") != std::string::npos;
      if (buffer != (role == core::TensorRole::kBuffer)) return std::nullopt;
      return role == core::TensorRole::kParam ? core::DType::kBf16 : core::DType::kFp32;
    };
    const layout::ModelLayout home = random_layout(random, config, experts);
    const ShardList list = shards_of_checkpoint(home, config, specs, kRoles, dtype_of);
    ASSERT_TRUE(check_coverage(list.shards).empty()) << "walk " << walk;
    const CheckpointInfo info = make_info(home, config);
    MemorySource memory(list.shards, info);
    TemporaryFolder folder;
    const auto start = write(memory, folder / "0", info, home, list, 1, {}, false);
    auto at = reshard(start, folder / "1", random_layout(random, config, experts), random, walk % 8 == 0);
    at = reshard(at, folder / "2", random_layout(random, config, experts), random, walk % 16 == 0);
    at = reshard(at, folder / "3", home, random, false);
    size_t files = 0;
    for (const auto& entry : fs::directory_iterator(start)) {
      const auto name = entry.path().filename();
      ASSERT_TRUE(read_file(entry.path()) == read_file(at / name)) << name << " walk " << walk << " seed " << seed;
      ++files;
    }
    ASSERT_EQ(files, static_cast<size_t>(std::distance(fs::directory_iterator(at), fs::directory_iterator())));
  }
}

}  // namespace
}  // namespace ms::ckpt
