// Random walks through the formats: models of every family, as Hugging Face, Megatron trees, torch_dist, PyTorch DCP
// and ours, in layouts that change with every step, come back bit for bit, weights and optimizer state. The value of
// each element encodes its position, so that a misplaced one is reported with its origin. 300 steps, 600 in `nightly`.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "ckpt/copy_box.h"
#include "ckpt/native_sink.h"
#include "ckpt/shard_list.h"
#include "convert/convert.h"
#include "convert/huggingface_config.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"
#include "tests/convert/tensors_of.h"
#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::DType;
using core::TensorRole;
using test::TensorsOfSource;

constexpr const char* kFamilies[] = {"gemma2",      "glm4",    "glm",       "gpt2",      "llama3",  "llama",
                                     "mistral",     "phi3",    "qwen2",     "qwen3",     "yarn",    "deepseek_v2",
                                     "deepseek_v3", "mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe"};
constexpr int64_t kSteps = 5;  // of the optimizer

// A positive fp32 value that is unique among numbers below 8e8, and that bf16 rounds down to its upper half.
uint32_t value_bits(int64_t number) {
  const int64_t upper = 0x1000 + number * 40501 % 0x6000, lower = number % 32749;
  return static_cast<uint32_t>(upper << 16 | lower);
}

// Numbers the elements of a role consecutively over all tensors. Weights are the upper halves of their masters.
int64_t first_number(TensorRole role) {
  return role == TensorRole::kExpAvg     ? 100'000'000
         : role == TensorRole::kExpAvgSq ? 200'000'000
         : role == TensorRole::kBuffer   ? 300'000'000
                                         : 0;
}

// Sets four layers; added layers have experts if the last one had.
void set_four_layers(core::TransformerConfig& model) {
  std::vector<bool> experts = model.layers_with_experts();
  model.num_layers = 4;
  experts.resize(4, experts.back());
  if (!model.has_experts()) return;
  model.moe_layer_freq = "[";
  for (const bool has : experts) model.moe_layer_freq += has ? "1," : "0,";
  model.moe_layer_freq.back() = ']';
  model.resolve(0);
}

// The state at the start and end of a walk.
TensorsOfSource make_state(const core::TransformerConfig& model, DType weights, bool with_optimizer) {
  TensorsOfSource state;
  std::vector<TensorRole> roles = {TensorRole::kParam, TensorRole::kBuffer};
  if (with_optimizer && weights != DType::kFp32) roles.push_back(TensorRole::kMaster);
  if (with_optimizer) roles.insert(roles.end(), {TensorRole::kExpAvg, TensorRole::kExpAvgSq});
  for (const TensorRole role : roles) {
    int64_t number = first_number(role);
    for (const layout::ParameterSpec& spec : layout::parameter_specs(model)) {
      if (!layout::has_role(spec, role)) continue;
      const DType dtype = role == TensorRole::kParam ? weights : DType::kFp32;
      const auto item = static_cast<size_t>(core::size_of(dtype));
      test::TensorOfSource tensor{dtype, spec.global_shape, {}};
      const auto count = static_cast<size_t>(core::num_elements(spec.global_shape));
      tensor.bytes.resize(count * item);
      for (size_t i = 0; i < count; ++i) {
        const uint32_t bits = value_bits(number++);
        const uint32_t stored = dtype == DType::kFp32 ? bits : bits >> 16;
        std::memcpy(tensor.bytes.data() + i * item, &stored, item);
      }
      state[{role, spec.key}] = std::move(tensor);
    }
  }
  return state;
}

// Names the elements of the state that have these bits.
std::string origin_of(const std::byte* bits, DType dtype, const TensorsOfSource& state) {
  const auto item = static_cast<size_t>(core::size_of(dtype));
  std::string found;
  for (const auto& [name, tensor] : state) {
    if (tensor.dtype != dtype) continue;
    for (size_t i = 0; i * item < tensor.bytes.size(); ++i) {
      if (std::memcmp(tensor.bytes.data() + i * item, bits, item) != 0) continue;
      found +=
          cat(found.empty() ? "" : " or ", "element ", i, " of ", core::role_name(name.first), " of ", name.second);
    }
  }
  return found.empty() ? "nowhere" : found;
}

// Returns an empty string if everything is equal.
std::string difference(const TensorsOfSource& seen, const TensorsOfSource& wanted) {
  const std::string what = test::first_difference(seen, wanted);
  if (what.empty() || what.find("differs") == std::string::npos) return what;
  for (const auto& [name, tensor] : wanted) {
    const test::TensorOfSource& other = seen.at(name);
    const auto at = std::mismatch(tensor.bytes.begin(), tensor.bytes.end(), other.bytes.begin()).first;
    if (at == tensor.bytes.end()) continue;
    const int64_t item = core::size_of(tensor.dtype), element = (at - tensor.bytes.begin()) / item;
    return cat(what, "; what is there comes from ",
               origin_of(other.bytes.data() + element * item, tensor.dtype, wanted));
  }
  return what;
}

class StateSource final : public ckpt::Source {
 public:
  StateSource(const TensorsOfSource& state, ckpt::CheckpointInfo info) : info_(std::move(info)) {
    for (const auto& [name, tensor] : state) {
      shards_.push_back(
          {name.second, name.first, tensor.dtype, tensor.shape, core::Dims(tensor.shape.size(), 0), tensor.shape});
      tensors_.push_back(&tensor);
    }
  }
  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }
  std::string describe(int32_t shard) const override { return cat("memory:", shard); }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const test::TensorOfSource& tensor = *tensors_[static_cast<size_t>(shard)];
    ckpt::copy_box(tensor.bytes.data(), tensor.shape, offset, out, extent, core::Dims(extent.size(), 0), extent,
                   core::size_of(tensor.dtype));
  }

 private:
  ckpt::CheckpointInfo info_;
  ckpt::ShardTable shards_;
  std::vector<const test::TensorOfSource*> tensors_;
};

class Walk {
  const auto& one_of(const auto& values) { return values[random_() % std::size(values)]; }

 public:
  // family: null for any.
  explicit Walk(uint64_t seed, const char* family = nullptr) : random_(seed) {
    if (family == nullptr) family = one_of(kFamilies);
    const HfConfig tiny = read_hf_config(cat(MS_TEST_DATA, "/hf_", family, "_tiny"));
    core::TransformerConfig model = tiny.model;
    set_four_layers(model);
    with_optimizer_ = random_() % 3 != 0;
    weights_ = random_() % 3 == 0 ? DType::kFp32 : DType::kBf16;
    // The folder of --hf-cfg-dir, for formats that do not describe the model.
    config_dir_ = folder_ / "config";
    fs::create_directory(config_dir_);
    const nlohmann::json config = make_hf_config(model, tiny.original, weights_);
    core::write_text_atomically(cat(config_dir_, "/config.json"), hf_json_text(config));
    ckpt::CheckpointInfo info;
    info.iteration = kSteps;
    info.model = parse_hf_config(config, "walk").model;
    state_ = make_state(info.model, weights_, with_optimizer_);
    has_experts_ = info.model.has_experts();
    info.common = {{"step", kSteps}};
    begin(info);
    said_ =
        cat(family, " ", core::dtype_name(weights_), with_optimizer_ ? " with" : " without", " optimizer state: ms");
  }

  void step() {
    const std::pair<Format, int> choices[] = {{Format::kHuggingFace, with_optimizer_ ? 0 : 1},
                                              {Format::kNative, at_ == Format::kNative ? 0 : 1},
                                              {Format::kMegatron, 1},
                                              {Format::kMegatronDist, 1},
                                              {Format::kDcp, 1}};
    Format to = Format::kNative;
    do {
      const auto& choice = one_of(choices);
      to = choice.second > 0 ? choice.first : at_;
    } while (to == at_);
    go(to);
  }

  // Compares the current state with the start.
  void check() {
    // DCP stores masters as weights; Megatron restores them.
    if (weights_are_masters_) go(Format::kMegatron);
    const auto source = open_source(path_);
    EXPECT_EQ(difference(test::tensors_of(*source), state_), "");
    if (with_optimizer_) {
      EXPECT_EQ(source->info().common.at("step"), kSteps);
    }
  }

  const std::string& said() const { return said_; }
  const TensorsOfSource& state() const { return state_; }

 private:
  void begin(const ckpt::CheckpointInfo& info) {
    StateSource source(state_, info);
    const auto specs = layout::parameter_specs(info.model);
    std::vector<TensorRole> roles;
    for (const TensorRole role :
         {TensorRole::kParam, TensorRole::kBuffer, TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
      if (ckpt::has_role(source, role)) roles.push_back(role);
    }
    const layout::ModelLayout layout;
    ckpt::ShardList list = ckpt::shards_of_checkpoint(layout, info.model, specs, roles,
                                                      [&](size_t spec, TensorRole role) -> std::optional<DType> {
                                                        if (!layout::has_role(specs[spec], role)) return std::nullopt;
                                                        return state_.at({role, specs[spec].key}).dtype;
                                                      });
    ckpt::NativeSinkOptions sink;
    sink.root = folder_ / "0";
    sink.rank_of_target = list.ranks;
    sink.num_ranks = 1;
    ckpt::CheckpointInfo written = info;
    written.layout = layout::layout_to_json(layout);
    path_ = ckpt::execute(source, *ckpt::make_native_sink(std::move(sink)), written, list.shards, {}).path.string();
  }

  void go(Format to) {
    ConvertOptions options;
    options.load_dir = path_;
    options.save_dir = folder_ / std::to_string(++steps_);
    options.save_model_type = to;
    options.execute.threads = 1 + static_cast<int>(random_() % 2);
    if (at_ == Format::kDcp || to == Format::kDcp || to == Format::kHuggingFace) options.hf_cfg_dir = config_dir_;
    if (to == Format::kHuggingFace) options.max_shard_size_bytes = random_() % 2 == 0 ? 8'000 : 1'000'000;
    if (to == Format::kDcp) options.target_data_parallel_size = one_of(std::array{1, 2, 3, 7});
    const bool megatron = to == Format::kMegatron || to == Format::kMegatronDist;
    if (megatron || to == Format::kNative) choose_layout(options);
    if (to == Format::kMegatron && random_() % 2 == 0) choose_pipeline(options);
    if (has_experts_ && (megatron || to == Format::kNative)) choose_expert_layout(options);
    if (megatron) {
      options.use_distributed_optimizer = random_() % 2 == 0;
      options.make_vocab_size_divisible_by = one_of(std::array{0, 1, 8, 64});
      if (random_() % 2 == 0) options.target_norm_naming = MegatronNaming::kLocal;
      if (random_() % 2 == 0) options.target_norm_naming = MegatronNaming::kTransformerEngine;
      if (random_() % 4 == 0) options.mg_args = MegatronArgsForm::kDict;
      options.moe_grouped_gemm = has_experts_ && random_() % 2 == 0;
      if (with_optimizer_) {  // what the first source lacks
        options.optimizer.lr = 1e-3;
        options.optimizer.adam_beta1 = 0.9;
        options.optimizer.adam_beta2 = 0.999;
        options.optimizer.adam_eps = 1e-8;
      }
      if (weights_are_masters_) options.dtype = DType::kBf16;
      if (with_optimizer_) weights_are_masters_ = false;
    }
    said_ += cat(" -> ", format_name(to), " TP ", options.target_tensor_parallel_size, " PP ",
                 options.target_pipeline_parallel_size, options.num_layers_per_virtual_pipeline_stage > 0 ? " VPP" : "",
                 options.extras.dualpipev ? " V" : "", options.use_distributed_optimizer ? " distributed" : "", " DP ",
                 options.target_data_parallel_size);
    for (const int64_t layer : options.extras.noop_layers) said_ += cat(" no-op ", layer);
    if (has_experts_) {
      said_ +=
          cat(" EP ", options.target_expert_parallel_size, " ETP ", options.expert_tensor_parallel_size.value_or(0),
              options.moe_tp_extend_ep ? " extended" : "", options.moe_grouped_gemm ? " grouped" : "");
    }
    const std::string before = path_;
    path_ = convert_checkpoint(options).path;
    fs::remove_all(before);
    at_ = to;
    if (to == Format::kDcp && with_optimizer_ && weights_ != DType::kFp32) weights_are_masters_ = true;
  }

  void choose_layout(ConvertOptions& options) {
    options.target_tensor_parallel_size = one_of(std::array{1, 2, 4});
    options.target_pipeline_parallel_size = one_of(std::array{1, 2, 4});
    if (options.target_pipeline_parallel_size == 2 && random_() % 2 == 0) {
      options.num_layers_per_virtual_pipeline_stage = 1;
    }
  }

  // MindSpeed-LLM's: four layers in four or eight slots, with or without dualpipe-v.
  void choose_pipeline(ConvertOptions& options) {
    const int pp = options.target_pipeline_parallel_size;
    options.extras.dualpipev = pp > 1 && random_() % 2 == 0;
    if (options.extras.dualpipev) options.num_layers_per_virtual_pipeline_stage = 0;
    const bool needs_eight = options.extras.dualpipev && pp == 4;
    if (!needs_eight && random_() % 3 == 0) return;
    std::array<int64_t, 8> slots = {0, 1, 2, 3, 4, 5, 6, 7};
    std::shuffle(slots.begin(), slots.end(), random_);
    options.extras.noop_layers.assign(slots.begin(), slots.begin() + 4);
    std::sort(options.extras.noop_layers.begin(), options.extras.noop_layers.end());
  }

  // For four experts.
  void choose_expert_layout(ConvertOptions& options) {
    const int tp = options.target_tensor_parallel_size;
    options.target_expert_parallel_size = one_of(std::array{1, 2, 4});
    if (random_() % 2 == 0) options.expert_tensor_parallel_size = 1;
    if (random_() % 3 != 0 || options.target_expert_parallel_size * tp > 4) return;
    options.moe_tp_extend_ep = true;
    options.expert_tensor_parallel_size.reset();
  }

  std::mt19937_64 random_;
  const test::TemporaryFolder folder_;
  std::string config_dir_, path_, said_;
  bool with_optimizer_ = false, weights_are_masters_ = false, has_experts_ = false;
  DType weights_ = DType::kBf16;
  TensorsOfSource state_;
  Format at_ = Format::kNative;
  int steps_ = 0;
};

TEST(Walks, RandomWalkThroughFormatsIsLossless) {
  if (fs::is_directory("/dev/shm") && std::getenv("TMPDIR") == nullptr) ::setenv("TMPDIR", "/dev/shm", 1);
  const char* seed_text = std::getenv("MS_TEST_SEED");
  const uint64_t seed = seed_text != nullptr ? std::strtoull(seed_text, nullptr, 10) : 20261122;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const int walks = std::getenv("MS_NIGHTLY") != nullptr ? 120 : 60;
  for (int walk = 0; walk < walks; ++walk) {
    Walk through(seed + static_cast<uint64_t>(walk));
    try {
      for (int step = 0; step < 5; ++step) through.step();
      through.check();
    } catch (const core::Error& error) {
      ADD_FAILURE() << error.what();
    }
    ASSERT_FALSE(HasFailure()) << "walk of seed " << seed + static_cast<uint64_t>(walk) << ": " << through.said();
  }
}

// Tests the report itself, with one misplaced element.
TEST(Walks, MisplacedElementIsReportedWithItsOrigin) {
  Walk walk(1, "llama");
  TensorsOfSource seen = walk.state();
  const auto from = seen.find({TensorRole::kParam, "decoder.layers.1.mlp.linear_fc2.weight"});
  const auto to = seen.find({TensorRole::kParam, "decoder.layers.2.mlp.linear_fc2.weight"});
  ASSERT_NE(from, seen.end());
  const auto item = static_cast<size_t>(core::size_of(from->second.dtype));
  std::memcpy(to->second.bytes.data() + 11 * item, from->second.bytes.data() + 17 * item, item);
  const std::string text = difference(seen, walk.state());
  EXPECT_NE(text.find("decoder.layers.2.mlp.linear_fc2.weight differs at element 11"), std::string::npos) << text;
  EXPECT_NE(text.find("element 17 of param of decoder.layers.1.mlp.linear_fc2.weight"), std::string::npos) << text;
}

}  // namespace
}  // namespace ms::convert
