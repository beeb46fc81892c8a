// A checkpoint of the size and shape of DeepSeek-V3 (671 B parameters, bf16, weights only), made of sparse files:
// planned, read and checked chunk by chunk, cut for another layout, and given to a sink that keeps nothing.
//
//   bench.ckpt.huge FOLDER [LAYERS [THREADS]]     61 layers, 2 threads; prints JSON; what is made in FOLDER is removed
//
// TP 4 PP 16 EP 32 to TP 8 PP 8 EP 16 with 61 layers, uneven stages both; fewer layers are split evenly over PP 2
// and 1.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/ckpt/measure.h"
#include "bench/ckpt/null_sink.h"
#include "bench/ckpt/sparse_checkpoint.h"
#include "ckpt/execute.h"
#include "ckpt/reader.h"
#include "ckpt/reshard.h"
#include "ckpt/shard_list.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"

namespace {

using namespace ms;
namespace fs = std::filesystem;

// config.json of deepseek-ai/DeepSeek-V3.
constexpr int64_t kHidden = 7168, kDense = 18432, kExpert = 2048, kExperts = 256, kHeads = 128;
constexpr int64_t kQRank = 1536, kKvRank = 512, kNope = 128, kRope = 64, kValue = 128, kDenseLayers = 3;

core::TransformerConfig model(int64_t layers) {
  core::TransformerConfig config;
  config.num_layers = layers;
  config.hidden_size = kHidden;
  config.ffn_hidden_size = kDense;
  config.num_attention_heads = kHeads;
  config.kv_channels = kValue;
  config.vocab_size = 129280;
  config.normalization = "RMSNorm";
  config.position_embedding_type = "rope";
  config.swiglu = true;
  config.add_bias_linear = false;
  config.untie_embeddings_and_output_weights = true;
  config.resolve(4096);
  return config;
}

std::vector<layout::ParameterSpec> parameters(const core::TransformerConfig& config) {
  std::vector<layout::ParameterSpec> specs, ends;
  for (auto& spec : layout::parameter_specs(config)) {
    if (spec.layer < 0)
      specs.push_back(std::move(spec));
    else if (spec.layer >= config.num_layers)
      ends.push_back(std::move(spec));
  }
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto add = [&](const std::string& name, const core::Dims& shape) {
      specs.push_back(*layout::parameter_spec_of(core::cat("decoder.layers.", layer, ".", name), shape, config));
      if (specs.back().expert >= 0) specs.back().num_experts = kExperts;
    };
    add("input_layernorm.weight", {kHidden});
    add("self_attention.linear_q_down_proj.weight", {kQRank, kHidden});
    add("self_attention.linear_q_up_proj.layer_norm_weight", {kQRank});
    add("self_attention.linear_q_up_proj.weight", {kHeads * (kNope + kRope), kQRank});
    add("self_attention.linear_kv_down_proj.weight", {kKvRank + kRope, kHidden});
    add("self_attention.linear_kv_up_proj.layer_norm_weight", {kKvRank});
    add("self_attention.linear_kv_up_proj.weight", {kHeads * (kNope + kValue), kKvRank});
    add("self_attention.linear_proj.weight", {kHidden, kHeads * kValue});
    add("pre_mlp_layernorm.weight", {kHidden});
    if (layer < kDenseLayers) {
      add("mlp.linear_fc1.weight", {2 * kDense, kHidden});
      add("mlp.linear_fc2.weight", {kHidden, kDense});
      continue;
    }
    add("mlp.router.weight", {kExperts, kHidden});
    add("mlp.shared_experts.linear_fc1.weight", {2 * kExpert, kHidden});
    add("mlp.shared_experts.linear_fc2.weight", {kHidden, kExpert});
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      add(core::cat("mlp.experts.local_experts.", expert, ".linear_fc1.weight"), {2 * kExpert, kHidden});
      add(core::cat("mlp.experts.local_experts.", expert, ".linear_fc2.weight"), {kHidden, kExpert});
    }
  }
  specs.insert(specs.end(), ends.begin(), ends.end());
  return specs;
}

// 61 layers over 16 stages, and over 8.
layout::ModelLayout source_layout(int64_t layers) {
  layout::ModelLayout layout{4, 2, 16, 0, 1, 32, 1};
  if (layers != 61) return layout;
  layout.pipeline_model_parallel_size = 16;
  layout.num_layer_list = {3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2};
  return layout;
}
layout::ModelLayout target_layout(int64_t layers) {
  layout::ModelLayout layout{8, 1, 8, 0, 1, 16, 2};
  if (layers != 61) return layout;
  layout.pipeline_model_parallel_size = 8;
  layout.num_layer_list = {7, 8, 8, 8, 8, 8, 8, 6};
  return layout;
}

int run(const fs::path& folder, int64_t layers, int threads) {
  const auto config = model(layers);
  const pid_t maker = ::fork();  // so that its memory is not counted
  if (maker == 0) {
    const auto specs = parameters(config);
    const core::TensorRole role = core::TensorRole::kParam;
    ckpt::CheckpointInfo info;
    info.model = config;
    info.layout = layout::layout_to_json(source_layout(layers));
    bench::make_sparse_checkpoint(
        folder, info,
        ckpt::shards_of_checkpoint(source_layout(layers), config, specs, std::span(&role, 1),
                                   [](size_t, core::TensorRole) { return std::optional(core::DType::kBf16); }));
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(maker, &status, 0);
  if (status != 0) return 1;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const auto source = ckpt::open_native(folder);
  const auto plan = ckpt::plan_reshard(*source, target_layout(layers), {});
  const double planned = seconds();
  bench::NullSink sink([&](int32_t target) { return plan.targets.ranks[static_cast<size_t>(target)]; });
  ckpt::ExecuteOptions options;
  options.threads = threads;
  const auto report = ckpt::execute(*source, sink, plan.info, plan.targets.shards, options);
  int64_t elements = 0;
  for (size_t i = 0; i < plan.targets.shards.size(); ++i) elements += plan.targets.shards.elements(i);
  const nlohmann::json result = {{"parameters", elements},
                                 {"bytes", report.bytes},
                                 {"tensors", source->shards().num_tensors()},
                                 {"source_boxes", source->shards().size()},
                                 {"target_boxes", plan.targets.shards.size()},
                                 {"copies", report.copies},
                                 {"open_and_list_s", planned},
                                 {"reshard_s", report.seconds},
                                 {"GB_per_s", static_cast<double>(report.bytes) / 1e9 / report.seconds},
                                 {"peak_MiB", static_cast<double>(bench::peak_memory_kib()) / 1024}};
  std::printf("%s\n", result.dump(2).c_str());
  return sink.elements() == elements ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return ms::bench::in_folder(argc, argv, "bench.ckpt.huge FOLDER [LAYERS [THREADS]]", [&](const fs::path& folder) {
    return run(folder, argc > 2 ? std::atoll(argv[2]) : 61, argc > 3 ? std::atoi(argv[3]) : 2);
  });
}
