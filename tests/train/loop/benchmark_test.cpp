// Compares rows, calls, FLOPs and bytes of --benchmark with the formulas of the configuration.
#include "train/loop/benchmark.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"

namespace ms::train {
namespace {

using core::Dims;

constexpr int64_t kLayers = 4, kMicrobatches = 4, kTokens = 16, kHidden = 32, kFfn = 48, kVocab = 272;
constexpr int64_t kHeads = 8, kGroups = 4, kHeadDim = 8, kQkv = (kHeads + 2 * kGroups) * kHeadDim;

TrainerConfig config_of(const test::TemporaryFolder& folder, const test::TinyLayout& layout = {}) {
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.ffn_hidden_size = kFfn;
  config.data.data_path.clear();
  config.optimizer.lr = 0;  // neither is needed
  config.training.train_iters = 0;
  return config;
}

BenchmarkReport run(const TrainerConfig& config, int ranks = 1) {
  BenchmarkReport report;
  test::run_thread_ranks(ranks, [&](core::Endpoint& endpoint) {
    core::ThreadPool pool;
    BenchmarkReport own = run_benchmark(config, endpoint, pool);
    if (endpoint.rank() == 0) report = std::move(own);
  });
  return report;
}

// The only such row. first_input: selects by shape if there are several.
OperatorRow row_of(const BenchmarkReport& report, const std::string& name, const std::string& layer = "",
                   const Dims& first_input = {}) {
  OperatorRow found;
  int count = 0;
  for (const BenchmarkReport::Row& row : report.rows) {
    if (row.work.name != name || row.layer != layer) continue;
    if (!first_input.empty() && row.work.inputs[0] != first_input) continue;
    found = row.work;
    ++count;
  }
  EXPECT_EQ(count, 1) << name << " " << layer;
  return found;
}

void expect_product(const BenchmarkReport& report, const std::string& layer, int64_t calls, int64_t out, int64_t in,
                    const std::string& forward = "linear") {
  for (const std::string& name : {forward, std::string("linear_dgrad"), std::string("linear_wgrad")}) {
    const OperatorRow row = row_of(report, name, layer);
    EXPECT_EQ(row.calls, calls) << name << " " << layer;
    EXPECT_EQ(row.flops, calls * 2 * kTokens * out * in) << name << " " << layer;
  }
}

int64_t num_elements_of_model() {
  return 2 * kVocab * kHidden + kHidden +
         kLayers * (kQkv * kHidden + kHeads * kHeadDim * kHidden + 3 * kFfn * kHidden + 2 * kHidden);
}

TEST(Benchmark, ListsEveryOperatorOfAStepWithCallsFlopsAndBytes) {
  test::TemporaryFolder folder;
  const TrainerConfig config = config_of(folder);
  const BenchmarkReport report = run(config);
  const int64_t calls = kLayers * kMicrobatches;
  expect_product(report, "linear_qkv", calls, kQkv, kHidden);
  expect_product(report, "linear_proj", calls, kHidden, kHeads * kHeadDim);
  expect_product(report, "linear_fc1", calls, 2 * kFfn, kHidden);
  expect_product(report, "linear_fc2", calls, kHidden, kFfn);
  expect_product(report, "output_layer", kMicrobatches, kVocab, kHidden, "linear_fp32");
  const int64_t scores = kTokens * kTokens * kHeadDim * kHeads;  // of the causal half, for each product
  EXPECT_EQ(row_of(report, "causal_attention").flops, calls * 2 * scores);
  EXPECT_EQ(row_of(report, "causal_attention_backward").flops, calls * 4 * scores);
  EXPECT_EQ(row_of(report, "rms_norm").calls, (2 * kLayers + 1) * kMicrobatches);
  EXPECT_EQ(row_of(report, "rms_norm").bytes, (2 * kLayers + 1) * kMicrobatches * 2 * 4 * kTokens * kHidden);
  for (const int64_t heads : {kHeads, kGroups}) {
    for (const char* name : {"rope", "rope_backward"}) {
      EXPECT_EQ(row_of(report, name, "", {kTokens, 1, heads, kHeadDim}).calls, calls) << name;
    }
  }
  EXPECT_EQ(row_of(report, "swiglu_backward").bytes, calls * 5 * 4 * kTokens * kFfn);
  EXPECT_EQ(row_of(report, "embedding").calls, kMicrobatches);
  EXPECT_EQ(row_of(report, "embedding_backward").calls, kMicrobatches);
  EXPECT_EQ(row_of(report, "cross_entropy_backward").bytes, kMicrobatches * 2 * 4 * kTokens * kVocab);
  EXPECT_EQ(row_of(report, "adamw").calls, 1);
  EXPECT_EQ(row_of(report, "adamw").bytes, num_elements_of_model() * 8 * 4);

  EXPECT_GT(report.steps, 0);
  EXPECT_GT(report.ceilings.gflops, 0);
  EXPECT_GT(report.ceilings.read_gbs, 0);
  EXPECT_GT(report.ceilings.copy_gbs, 0);
  const std::string table = report.table();
  const nlohmann::json json = report.json();
  ASSERT_EQ(json["operators"].size(), report.rows.size());
  double sum = report.other_seconds;
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const OperatorRow& row = report.rows[i].work;
    EXPECT_GT(row.seconds, 0) << row.name;
    EXPECT_NE(table.find("\n" + row.name + " "), std::string::npos) << table;
    EXPECT_EQ(json["operators"][i]["operator"], row.name);
    EXPECT_EQ(json["operators"][i]["flops_per_step"], row.flops);
    sum += row.seconds;
  }
  EXPECT_NEAR(sum, report.step_seconds, 1e-9);
}

TEST(Benchmark, ListsAdditionsOfGradientsWithoutTheirFusion) {
  test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder);
  config.training.gradient_accumulation_fusion = false;
  const OperatorRow row = row_of(run(config), "accumulate", "", {kVocab, kHidden});
  EXPECT_EQ(row.calls, kMicrobatches);
  EXPECT_EQ(row.bytes, kMicrobatches * 3 * 4 * kVocab * kHidden);
}

TEST(Benchmark, ListsLossChunksAndTheirDtype) {
  test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder);
  config.training.loss_chunk_size = 5;
  config.training.bf16 = true;
  const BenchmarkReport report = run(config);
  EXPECT_EQ(row_of(report, "linear_fp32", "output_layer", {5, kHidden}).calls, 3 * kMicrobatches);
  EXPECT_EQ(row_of(report, "linear_fp32", "output_layer", {1, kHidden}).calls, kMicrobatches);
  EXPECT_EQ(row_of(report, "adamw").bytes, num_elements_of_model() * (8 * 4 + 2));
  EXPECT_EQ(report.json()["dtype"], "bf16");
}

TEST(Benchmark, MeasuresARanksShareAndMergesLayersOfOneShape) {
  test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder, {.tp = 2});
  config.model.ffn_hidden_size = kQkv / 2;  // so that linear_fc1 is as large as linear_qkv
  const BenchmarkReport report = run(config, 2);
  const OperatorRow row = row_of(report, "linear", "linear_qkv/linear_fc1");
  EXPECT_EQ(row.inputs[1], (Dims{kQkv / 2, kHidden}));
  EXPECT_EQ(row.calls, 2 * kLayers * kMicrobatches);
}

}  // namespace
}  // namespace ms::train
