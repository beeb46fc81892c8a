// Routing traces have the bytes of those that Megatron's tracer wrote of the same choices (tests/data/routing).
#include "train/model/routing_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "core/error.h"
#include "core/io/file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::train {
namespace {

std::string megatrons(int rank) {
  return core::read_text(core::cat(MS_TEST_DATA "/routing/megatron/router_trace_rank", rank, ".jsonl"), 1 << 20);
}

// The records of a file once more, the experts of each token in another order.
void write_again(const std::string& text, RoutingTrace& trace) {
  std::istringstream lines(text);
  int64_t step = -1;
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    const auto next = record.at("step").get<int64_t>();
    if (step >= 0 && next != step) trace.end_step(step);
    step = next;
    std::vector<int32_t> experts;
    for (auto chosen : record.at("top_indices").get<std::vector<std::vector<int32_t>>>()) {
      std::ranges::reverse(chosen);
      experts.insert(experts.end(), chosen.begin(), chosen.end());
    }
    const auto number = [&](const char* key) { return record.at(key).get<int64_t>(); };
    trace.add({record.value("mtp_idx", int64_t{-1}), number("layer")},
              core::TensorView(experts.data(), core::DType::kInt32, {number("num_tokens"), number("topk")}));
  }
  trace.end_step(step);
}

TEST(RoutingTrace, HasTheBytesOfMegatrons) {
  const test::TemporaryFolder folder;
  for (const int rank : {0, 1}) {
    RoutingTrace trace(folder / "new/routes", rank, std::nullopt);
    write_again(megatrons(rank), trace);
    EXPECT_EQ(core::read_text(core::cat(folder / "new/routes", "/router_trace_rank", rank, ".jsonl"), 1 << 20),
              megatrons(rank));
  }
}

TEST(RoutingTrace, EndsAfterTheLastIteration) {
  const test::TemporaryFolder folder;
  RoutingTrace trace(folder.path(), 0, 1);
  write_again(megatrons(0), trace);
  const std::string all = megatrons(0);
  EXPECT_EQ(core::read_text(folder / "router_trace_rank0.jsonl", 1 << 20), all.substr(0, all.find("{\"step\": 6")));
}

TEST(RoutingTrace, ReplacesAnEarlierRun) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "router_trace_rank0.jsonl", "earlier\n");
  RoutingTrace(folder.path(), 0, std::nullopt).end_step(0);
  EXPECT_EQ(core::read_text(folder / "router_trace_rank0.jsonl", 1 << 20), "");
}

TEST(RoutingTrace, FolderThatCannotBeIsNamedWithItsFlag) {
  const test::Thrown thrown = test::thrown_by([] { RoutingTrace("/dev/null/no", 0, std::nullopt); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
  EXPECT_TRUE(thrown.text.starts_with("--moe-routing-trace-path /dev/null/no: ")) << thrown.text;
}

TEST(RoutingTrace, LeavesPaddingOut) {
  const test::TemporaryFolder folder;
  std::vector<int32_t> experts = {1, 0, 2, 3, 3, 1};
  const std::vector<uint8_t> padding = {0, 1, 0};
  RoutingTrace trace(folder.path().string(), 0, {});
  trace.add({-1, 2}, core::TensorView(experts.data(), core::DType::kInt32, {3, 2}), padding);
  trace.end_step(4);
  const std::string text = core::read_text(folder / "router_trace_rank0.jsonl", 1 << 20);
  EXPECT_NE(text.find("\"num_tokens\": 2, \"topk\": 2, \"top_indices\": [[0, 1], [1, 3]]"), std::string::npos) << text;
}

}  // namespace
}  // namespace ms::train
