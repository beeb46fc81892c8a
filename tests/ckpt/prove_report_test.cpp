#include "ckpt/prove_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ms::ckpt {
namespace {

ProofReport some_report() {
  ProofReport report;
  report.faults = {{FaultKind::kSwapped, "a.layers.1.w", core::TensorRole::kExpAvg, "file:x", "it is swapped"}};
  for (int layer = 0; layer < 2; ++layer) {
    ProvedTensor tensor;
    tensor.key = core::cat("a.layers.", layer, ".w");
    tensor.shape = {2, 3};
    tensor.rms = 1 + layer;
    tensor.min = -layer;
    tensor.max = 2;
    tensor.zeros = layer;
    tensor.logical_xxh3 = 255;
    report.tensors.push_back(tensor);
  }
  return report;
}

TEST(ProveReport, JsonHasFaultsAndStatistics) {
  const nlohmann::json seen = proof_json(some_report());
  EXPECT_EQ(seen["ok"], false);
  EXPECT_EQ(seen["faults"][0]["kind"], "swapped");
  EXPECT_EQ(seen["faults"][0]["role"], "exp_avg");
  EXPECT_EQ(seen["tensors"][1]["rms"], 2.0);
  EXPECT_EQ(seen["tensors"][1]["logical_xxh3"], "00000000000000ff");
  EXPECT_EQ(proof_json({})["ok"], true);
}

TEST(ProveReport, StatisticsOfLayersShareALine) {
  EXPECT_THAT(statistics_lines(some_report()),
              testing::ElementsAre("a.layers.#.w (param): 2 tensors, rms 1 to 2, values -1 to 2, 1 zeros"));
}

}  // namespace
}  // namespace ms::ckpt
