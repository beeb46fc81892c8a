// What modules compute, written from any layout, and the first module in which two runs part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <set>

#include "ckpt/reader.h"
#include "ckpt/recording.h"
#include "ckpt/tensor_diff.h"
#include "core/layout/recorded_tensors.h"
#include "tests/support/thrown.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::TinyLayout;
using Change = std::function<void(train::TrainerConfig&)>;

class TensorDump : public testing::Test {
 protected:
  // A run of two steps, of which the first is written: afterwards the layouts' weights differ, since AdamW makes much
  // of a gradient near 0.
  std::filesystem::path dump(const std::string& name, const TinyLayout& layout, const Change& change = {}) {
    train::TrainerConfig config = test::tiny_config(folder_.path(), layout);
    config.training.train_iters = 2;
    config.logger.save_tensors = {1};
    config.logger.save_tensors_dir = folder_ / name;
    if (change) change(config);
    test::run_on_threads(config, layout.ranks());
    return config.logger.save_tensors_dir;
  }
  static std::vector<ckpt::TensorDistance> distances(const std::filesystem::path& a, const std::filesystem::path& b,
                                                     ckpt::TensorDiffOptions options = {}) {
    const auto first = ckpt::open_native(a), second = ckpt::open_native(b);
    return ckpt::diff_tensors(*first, *second, options);
  }
  static std::string first_beyond(const std::vector<ckpt::TensorDistance>& tensors) {
    for (const ckpt::TensorDistance& tensor : tensors) {
      if (!tensor.is_beyond() && !tensor.is_absent) continue;
      std::printf("%s: relative L2 %.1e\n", tensor.tensor.c_str(), tensor.relative_l2);
      return core::cat(tensor.tensor, " ", tensor.fault);
    }
    return "";
  }

  test::TemporaryFolder folder_;
};

TEST_F(TensorDump, HasEveryTensorOfEveryLayoutInTheOrderOfExecution) {
  const auto one = dump("one", {});
  const auto source = ckpt::open_native(one);
  std::set<std::string> seen, expected;
  for (const core::ShardedTensor& shard : source->shards()) seen.insert(shard.key);
  const std::vector<std::string> order = layout::recorded_tensors(source->info().model);
  expected.insert(order.begin(), order.end());
  EXPECT_EQ(seen, expected);
  const std::vector<TinyLayout> layouts = {{1, 2, 1},
                                           {1, 2, 1, false, false, 2},
                                           {1, 2, 1, false, false, 1, "zb-v"},
                                           {2, 1, 1},
                                           {2, 1, 1, false, true},
                                           {1, 1, 2, true},
                                           {1, 1, 2},
                                           {2, 2, 2, true, true},
                                           {2, 2, 1, false, true, 1, "dualpipev delayed"},
                                           {.cp = 2},
                                           {.cp = 2, .context = "p2p"},
                                           {.tp = 2, .dp = 2, .sp = true, .cp = 2, .context = "all_gather"},
                                           {.cp = 4, .context = "hybrid_adaptive"}};
  for (const TinyLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    ckpt::TensorDiffOptions options;
    options.tolerance = layout.tp == 1 && layout.dp == 1 && layout.cp == 1 ? 1e-30 : 2e-5;
    const auto tensors = distances(one, dump(layout.name(), layout), options);
    EXPECT_EQ(first_beyond(tensors), "");
    ASSERT_EQ(tensors.size(), order.size());
    for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(tensors[i].tensor, order[i]);
  }
}

TEST_F(TensorDump, IsTheSameForOtherMicroBatchesAndRecomputation) {
  const auto one = dump("one", {});
  const Change other = [](train::TrainerConfig& config) {
    config.training.micro_batch_size = 2;
    config.training.recompute_granularity = "full";
    config.training.recompute_method = "uniform";
    config.training.recompute_num_layers = 1;
  };
  EXPECT_EQ(first_beyond(distances(one, dump("other", {}, other), {.tolerance = 2e-5})), "");
}

struct Planted {
  const char* name;
  Change change;
  const char* first;
};

TEST_F(TensorDump, NamesTheModuleInWhichRunsPart) {
  const std::vector<Planted> table = {
      {"rotary base", [](train::TrainerConfig& config) { config.model.rotary_base = 20000; },
       "decoder.layers.0.self_attention.core_attention:output "},
      {"epsilon of norms", [](train::TrainerConfig& config) { config.model.norm_epsilon = 0.1; },
       "decoder.layers.0.self_attention.linear_qkv:output "},
      {"activation", [](train::TrainerConfig& config) { config.model.swiglu = false, config.model.geglu = true; },
       "decoder.layers.0:output "},
      {"window of one layer",
       [](train::TrainerConfig& config) {
         config.model.sliding_window = 3;
         config.model.window_attn_skip_freq = {"[0,0,1,0]"};
       },
       "decoder.layers.2.self_attention.core_attention:output "},
      {"seed", [](train::TrainerConfig& config) { config.rng.seed = 99; }, "embedding:output "},
      {"width of the MLP", [](train::TrainerConfig& config) { config.model.ffn_hidden_size = 96; },
       "decoder.layers.0.mlp.linear_fc1:output shape [16, 4, 128] and [16, 4, 192]"},
  };
  const auto one = dump("one", {});
  for (const Planted& row : table) {
    const auto other = dump(row.name, {1, 2, 1}, row.change);
    EXPECT_EQ(first_beyond(distances(one, other)), row.first) << row.name;
  }
}

TEST_F(TensorDump, PerturbedRunMeasuresRounding) {
  const Change perturbed = [](train::TrainerConfig& config) { config.logger.save_tensors_perturbation = 1e-6; };
  const auto one = dump("one", {}), noise = dump("noise", {}, perturbed);
  EXPECT_EQ(first_beyond(distances(noise, dump("noise2", {2, 2, 1, false, true}, perturbed), {.tolerance = 2e-5})), "")
      << "signs are the same in every layout";
  const TinyLayout rings{.tp = 2, .sp = true, .cp = 2, .context = "p2p"};
  EXPECT_EQ(first_beyond(distances(noise, dump("noise3", rings, perturbed), {.tolerance = 2e-5})), "");
  for (const ckpt::TensorDistance& tensor : distances(one, noise, {.tolerance = 1e-2})) {
    EXPECT_GT(tensor.relative_l2, 0) << tensor.tensor;
    EXPECT_FALSE(tensor.is_beyond()) << tensor.tensor << ": " << tensor.relative_l2;
  }
  const auto with_noise = ckpt::open_native(noise);
  ckpt::TensorDiffOptions options;
  options.noise = with_noise.get();
  const auto layout = dump("layout", {2, 1, 2, true, true});
  EXPECT_EQ(first_beyond(distances(one, layout, options)), "");
  options.noise = nullptr;
  options.tolerance = 1e-9;
  EXPECT_NE(first_beyond(distances(one, layout, options)), "") << "the sums are others";
}

TEST_F(TensorDump, FilterAndKindsChooseWhatIsWritten) {
  const auto few = dump("few", {1, 2, 1}, [](train::TrainerConfig& config) {
    config.logger.save_tensors.clear();
    config.logger.save_activations_interval = 2;
    config.logger.save_wgrads_interval = 2;
    config.logger.save_tensors_filter = "layers\\.3\\.(mlp|self_attn_bda)";
  });
  std::set<std::string> seen;
  const auto source = ckpt::open_native(few);
  EXPECT_EQ(source->info().iteration, 2);
  for (const core::ShardedTensor& shard : source->shards()) seen.insert(shard.key);
  const std::string layer = "decoder.layers.3.";
  EXPECT_EQ(seen,
            (std::set<std::string>{
                layer + "mlp.linear_fc1:output", layer + "self_attn_bda:output", layer + "mlp.linear_fc1.weight:grad",
                layer + "mlp.linear_fc1.layer_norm_weight:grad", layer + "mlp.linear_fc2.weight:grad"}));
}

// One format, two kinds: neither is taken for the other.
TEST_F(TensorDump, SharesNoFolderWithCheckpoints) {
  const auto recorded = dump("recorded", {});
  const auto run = [&](const Change& change) {
    train::TrainerConfig config = test::tiny_config(folder_.path());
    config.training.train_iters = 2;
    change(config);
    test::run_on_threads(config, 1);
  };
  const auto thrown_by = [&](const Change& change) { return test::thrown_by([&] { run(change); }); };
  const auto saves = [&](train::TrainerConfig& config) { config.checkpoint.save = folder_ / "saved"; };
  run(saves);
  const Change records_there = [&](train::TrainerConfig& config) {
    config.logger.save_tensors = {1};
    config.logger.save_tensors_dir = folder_ / "saved";
  };
  EXPECT_NE(thrown_by(records_there).text.find("it holds checkpoints"), std::string::npos);
  const Change saves_there = [&](train::TrainerConfig& config) { config.checkpoint.save = recorded; };
  EXPECT_NE(thrown_by(saves_there).text.find("it holds what modules computed"), std::string::npos);
  const Change loads = [&](train::TrainerConfig& config) { config.checkpoint.load = recorded; };
  EXPECT_NE(thrown_by(loads).text.find("is no checkpoint"), std::string::npos);
  EXPECT_EQ(test::thrown_by([&] { distances(recorded, folder_ / "saved"); }).code, core::ErrorCode::kInvalidArgument);
  EXPECT_NE(test::thrown_by([&] { distances(folder_ / "saved", folder_ / "saved"); }).text.find("both are checkpoints"),
            std::string::npos);
  const Change nothing = [&](train::TrainerConfig& config) {
    config.logger.save_tensors = {1};
    config.logger.save_tensors_dir = folder_ / "nothing";
    config.logger.save_tensors_filter = "nosuchname";
  };
  EXPECT_NE(thrown_by(nothing).text.find("no tensor has such a name"), std::string::npos);
}

TEST_F(TensorDump, Bf16RunHasTheRoundingOfBf16) {
  const Change bf16 = [](train::TrainerConfig& config) { config.training.bf16 = true; };
  const auto tensors = distances(dump("one", {}, bf16), dump("two", {2, 1, 1, false, true}, bf16));
  EXPECT_EQ(first_beyond(tensors), "");
  for (const ckpt::TensorDistance& tensor : tensors) EXPECT_EQ(tensor.allowed, 0.1) << "gradients in fp32 too";
}

// What a perturbation of one unit in the last place measures holds for every layout.
TEST_F(TensorDump, LayoutsAreWithinThreePerturbationsInLowPrecision) {
  for (const auto& [dtype, ulp] : {std::pair{"bf16", 4e-3}, std::pair{"fp16", 5e-4}}) {
    const std::string name(dtype);
    const Change low = [&](train::TrainerConfig& config) {
      (name == "bf16" ? config.training.bf16 : config.training.fp16) = true;
      config.training.initial_loss_scale = 1024;
    };
    const Change perturbed = [&, by = ulp](train::TrainerConfig& config) {
      low(config);
      config.logger.save_tensors_perturbation = by;
    };
    const auto one = dump(name, {}, low);
    const auto noise = ckpt::open_native(dump(name + "noise", {}, perturbed));
    const std::vector<TinyLayout> layouts = {
        {2, 1, 1, false, true}, {1, 2, 1}, {1, 1, 2, true}, {4, 1, 1}, {2, 2, 2, true, true}};
    for (const TinyLayout& layout : layouts) {
      SCOPED_TRACE(core::cat(name, " ", layout.name()));
      const auto tensors = distances(one, dump(name + layout.name(), layout, low), {.noise = noise.get()});
      EXPECT_EQ(first_beyond(tensors), "");
      double closest = 0;
      for (const ckpt::TensorDistance& tensor : tensors) closest = std::max(closest, tensor.share());
      EXPECT_LT(closest, 0.6);
    }
    const Change other = [&](train::TrainerConfig& config) {
      low(config);
      config.model.norm_epsilon = 0.1;
    };
    EXPECT_EQ(first_beyond(distances(one, dump(name + "planted", {2, 1, 1}, other), {.noise = noise.get()})),
              "decoder.layers.0.self_attention.linear_qkv:output ");
  }
}

TEST_F(TensorDump, DtypesAreComparedByTheirValues) {
  const Change bf16 = [](train::TrainerConfig& config) { config.training.bf16 = true; };
  const auto tensors = distances(dump("fp32", {}), dump("bf16", {}, bf16));
  EXPECT_EQ(first_beyond(tensors), "");
  EXPECT_EQ(tensors.front().allowed, 0.1) << "of the coarser one";
}

// The scale is no part of what is computed.
TEST_F(TensorDump, GradientsAreWithoutTheLossScale) {
  const auto scaled = [&](double scale) {
    return dump(core::cat("scale", scale), {2, 1, 1}, [&](train::TrainerConfig& config) {
      config.training.fp16 = true;
      config.training.initial_loss_scale = scale;
    });
  };
  EXPECT_EQ(first_beyond(distances(scaled(4096), scaled(65536), {.tolerance = 1e-2})), "");
  EXPECT_EQ(first_beyond(distances(dump("fp32", {}), scaled(16384), {.tolerance = 2e-2})), "");
}

TEST_F(TensorDump, StepWithoutFiniteGradientsIsToldWhenRecorded) {
  testing::internal::CaptureStderr();
  const auto huge = dump("huge", {}, [](train::TrainerConfig& config) {
    config.training.fp16 = true;
    config.training.initial_loss_scale = 0x1p32;
  });
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("iteration 1 was skipped, its gradients are not finite"), std::string::npos) << log;
  const auto tensors = distances(huge, huge);
  EXPECT_EQ(first_beyond(tensors), "");
  EXPECT_TRUE(std::ranges::any_of(tensors, [](const auto& tensor) { return !tensor.incomparable.empty(); }));
}

TEST_F(TensorDump, IterationsThatDoNotComeAreRefusedAndTold) {
  const auto run = [&](const Change& change) {
    train::TrainerConfig config = test::tiny_config(folder_.path());
    config.training.train_iters = 2;
    config.logger.save_tensors = {1};
    config.logger.save_tensors_dir = folder_ / "never";
    change(config);
    test::run_on_threads(config, 1);
  };
  const Change saves = [&](train::TrainerConfig& config) {
    config.logger.save_tensors.clear();
    config.logger.save_tensors_dir.clear();
    config.checkpoint.save = folder_ / "saved";
  };
  run(saves);
  const Change continues = [&](train::TrainerConfig& config) {
    config.training.train_iters = 4;
    config.checkpoint.load = folder_ / "saved";
  };
  EXPECT_NE(test::thrown_by([&] { run(continues); }).text.find("--save-tensors 1: nothing to record"),
            std::string::npos);
  const Change skips = [](train::TrainerConfig& config) { config.training.iterations_to_skip = {1}; };
  EXPECT_NE(test::thrown_by([&] { run(skips); }).text.find("--iterations-to-skip"), std::string::npos);
}

TEST_F(TensorDump, SmallestCommonIterationIsCompared) {
  const auto of = [&](const std::string& name, const std::vector<int64_t>& iterations) {
    return dump(name, {}, [&](train::TrainerConfig& config) {
      config.training.train_iters = 4;
      config.logger.save_tensors = iterations;
    });
  };
  const std::vector<std::filesystem::path> roots = {of("a", {1, 2, 4}), of("b", {2, 3, 4})};
  const auto names = [&](std::optional<int64_t> iteration) {
    std::vector<std::string> result;
    for (const auto& directory : ckpt::directories_of_one_iteration(roots, iteration))
      result.push_back(directory.filename());
    return result;
  };
  EXPECT_EQ(names({}), (std::vector<std::string>{"iter_0000002", "iter_0000002"}));
  EXPECT_EQ(names(4), (std::vector<std::string>{"iter_0000004", "iter_0000004"}));
  of("a", {2});  // a second attempt
  EXPECT_EQ(names({}), (std::vector<std::string>{"iter_0000002.r1", "iter_0000002"}));
  EXPECT_EQ(test::thrown_by([&] { names(1); }).code, core::ErrorCode::kInvalidArgument);
  const std::vector<std::filesystem::path> apart = {roots[0] / "iter_0000001", roots[1]};
  const std::string text = test::thrown_by([&] { ckpt::directories_of_one_iteration(apart, {}); }).text;
  EXPECT_NE(text.find("no iteration is in all"), std::string::npos) << text;
  EXPECT_NE(text.find("has iterations 2, 3, 4"), std::string::npos) << text;
}

TEST_F(TensorDump, ChangesNoBitOfTheRun) {
  const auto run = [&](const std::vector<int64_t>& saved) {
    train::TrainerConfig config = test::tiny_config(folder_.path(), {2, 2, 1, false, true});
    config.training.train_iters = 4;
    config.logger.save_tensors = saved;
    if (!saved.empty()) config.logger.save_tensors_dir = folder_ / "beside";
    return test::run_on_threads(config, 4).steps.back();
  };
  const train::StepMetrics plain = run({}), recorded = run({2, 3});
  EXPECT_EQ(plain.loss, recorded.loss);
  EXPECT_EQ(plain.grad_norm, recorded.grad_norm);
}

TEST_F(TensorDump, OtherNamesAreRenamed) {
  const auto one = dump("one", {});
  ckpt::TensorDiffOptions options;
  options.renames.push_back({std::regex("^decoder\\.layers\\.(\\d+)\\.mlp"), "decoder.layers.$1.MLP"});
  EXPECT_EQ(first_beyond(distances(one, one, options)), "decoder.layers.0.mlp.linear_fc1:output only in the first");
  options.renames.push_back({std::regex("MLP"), "mlp"});
  EXPECT_EQ(first_beyond(distances(one, one, options)), "");
  options.renames = {{std::regex("layers\\.[12]"), "layers.1"}};
  EXPECT_EQ(test::thrown_by([&] { distances(one, one, options); }).code, core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ms
