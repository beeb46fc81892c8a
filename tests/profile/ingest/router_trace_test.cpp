// Routing traces as Megatron writes them, and mstrain's metrics: counts, steps, ranks; what is damaged is left out.
#include "profile/ingest/router_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/error.h"
#include "profile/analysis/device.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::profile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// json.dumps of a record of the decoder.
std::string record(int step, int layer, int rank, int tokens, int topk, const std::string& chosen,
                   const std::string& more = {}) {
  return core::cat(R"({"step": )", step, R"(, "stage": "pre_dispatch", "block": "decoder", "layer": )", layer,
                   R"(, "rank": )", rank, R"(, "num_tokens": )", tokens, R"(, "topk": )", topk, more,
                   R"(, "top_indices": )", chosen, "}\n");
}

class RouterTraceTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    ms::test::write_file(folder_ / name, text);
    return folder_ / name;
  }
  // Tokens by name and step.
  static std::map<std::string, std::map<int64_t, double>> counts(const RankTrace& trace) {
    std::map<std::string, std::map<int64_t, double>> out;
    for (const CounterSample& sample : trace.counters)
      out[trace.names[sample.name]][sample.ts / 1'000'000] += sample.value;
    return out;
  }
  static std::map<std::string, int64_t> issues(const Store& store) {
    std::map<std::string, int64_t> out;
    for (const auto& [kind, issue] : store.stats.issues()) out[kind] = issue.count;
    return out;
  }

  ms::test::TemporaryFolder folder_;
};

TEST_F(RouterTraceTest, CountsTheTokensOfEachExpertOfALayerAndStep) {
  write("router_trace_rank1.jsonl", record(0, 3, 1, 2, 2, "[[0, 5], [5, 2]]") +  // two micro-batches
                                        record(0, 3, 1, 1, 2, "[[5, 1]]") +      //
                                        record(0, 4, 1, 1, 2, "[[1, -1]]") +     //
                                        record(7, 3, 1, 0, 2, "[]") +            //
                                        record(7, 4, 1, 1, 1, "[[0]]",           //
                                               R"(, "mtp_idx": 0, "hs_offset": 0, "hs_shape": [1, 8])"));
  write("hidden_states_rank1.bin", "binary");
  const Store store = load({folder_.path().string()}, {});
  ASSERT_EQ(store.ranks.size(), 1U);
  const RankTrace& trace = *store.ranks[0];
  EXPECT_EQ(trace.rank, 1);
  EXPECT_EQ(store.files[0].format, "router_trace");
  EXPECT_EQ(store.files[0].events, 5);
  const auto found = counts(trace);
  EXPECT_EQ(found.size(), 6U);
  EXPECT_THAT(found.at("moe layer 3 expert 5 chosen"), ElementsAre(Pair(0, 3)));
  EXPECT_THAT(found.at("moe layer 3 expert 0 chosen"), ElementsAre(Pair(0, 1)));
  EXPECT_THAT(found.at("moe layer 4 expert 1 chosen"), ElementsAre(Pair(0, 1)));
  EXPECT_THAT(found.at("moe mtp 0 layer 4 expert 0 chosen"), ElementsAre(Pair(7, 1)));
  const std::vector<Step> steps = find_steps(trace);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].number, 7);
}

TEST_F(RouterTraceTest, ReadsTheRecordsOfEarlierVersions) {
  write("router_trace_rank0.jsonl",
        R"({"step": 0, "layer": 1, "rank": 0, "num_tokens": 1, "topk": 2, "top_indices": [[3, 1]]})");
  const Store store = load({folder_.path().string()}, {});
  EXPECT_THAT(counts(*store.ranks[0]).at("moe layer 1 expert 3 chosen"), ElementsAre(Pair(0, 1)));
  EXPECT_TRUE(issues(store).empty()) << "the last line may end without a line break";
}

TEST_F(RouterTraceTest, ReadsMetricsWithTheLoadOfExperts) {
  write("metrics.jsonl",
        R"({"iteration":1,"consumed_train_samples":2,"experts":[{"layer":0,"tokens":[5,0],"dropped":0,"z_loss":1.5},)"
        R"({"layer":1,"tokens":[2,3],"dropped":0},{"layer":2,"mtp":0,"tokens":[1,4]}],"arena":{"blocks":3}})"
        "\n"
        R"({"iteration":2,"lm loss validation":2.5})"
        "\n");
  const Store store = load({folder_.path().string()}, {});
  EXPECT_TRUE(issues(store).empty());
  const auto found = counts(*store.ranks.at(0));
  EXPECT_EQ(found.size(), 6U);
  EXPECT_THAT(found.at("moe layer 0 expert 0 tokens"), ElementsAre(Pair(0, 5)));
  EXPECT_THAT(found.at("moe layer 0 expert 1 tokens"), ElementsAre(Pair(0, 0)));
  EXPECT_THAT(found.at("moe layer 1 expert 1 tokens"), ElementsAre(Pair(0, 3)));
  EXPECT_THAT(found.at("moe mtp 0 layer 0 expert 1 tokens"), ElementsAre(Pair(0, 4)));
}

TEST_F(RouterTraceTest, MetricsSayWhereExpertsThatMoveAre) {
  write("metrics.jsonl",
        R"({"iteration":1,"consumed_train_samples":2,"experts":[{"layer":0,"tokens":[5,0,1],"ranks":[0,0,1]}]})"
        "\n"
        R"({"iteration":2,"experts":[{"layer":0,"tokens":[4,1,2],"ranks":[1,0,1]}]})"
        "\n"
        R"({"iteration":3,"experts":[{"layer":0,"tokens":[4,1,2],"ranks":[1,0]}]})"
        "\n");
  const Store store = load({folder_.path().string()}, {});
  EXPECT_THAT(issues(store), ElementsAre(Pair("bad_event", 1))) << "a rank for each expert";
  const auto found = counts(*store.ranks.at(0));
  EXPECT_EQ(found.size(), 4U);
  EXPECT_THAT(found.at("moe layer 0 expert 0 tokens on rank 0"), ElementsAre(Pair(0, 5)));
  EXPECT_THAT(found.at("moe layer 0 expert 0 tokens on rank 1"), ElementsAre(Pair(1, 4)));
  EXPECT_THAT(found.at("moe layer 0 expert 1 tokens on rank 0"), ElementsAre(Pair(0, 0), Pair(1, 1)));
  EXPECT_THAT(found.at("moe layer 0 expert 2 tokens on rank 1"), ElementsAre(Pair(0, 1), Pair(1, 2)));
}

TEST_F(RouterTraceTest, MetricsOfOtherModelsAreNone) {
  const std::string path = write("metrics.jsonl", R"({"iteration":1,"consumed_train_samples":2,"lm loss":2.5})"
                                                  "\n");
  EXPECT_THAT(ms::test::thrown_by([&] { load({path}, {}); }).text, HasSubstr("metrics.jsonl: metrics without experts"));
  write("router_trace_rank0.jsonl", record(0, 0, 0, 1, 1, "[[2]]"));
  const Store store = load({folder_.path().string()}, {});
  EXPECT_EQ(store.ranks.size(), 1U);
  EXPECT_THAT(issues(store), ElementsAre(Pair("skipped_files", 1)));
}

TEST_F(RouterTraceTest, WrongLinesAreLeftOutAndCounted) {
  const std::string good = record(0, 0, 0, 1, 1, "[[2]]");
  for (const std::string& wrong :
       {record(0, 0, 0, 2, 1, "[[1]]"), record(0, 0, 0, 1, 2, "[[1]]"), record(0, 0, 0, 2, 1, "[[1], [1, 2]]"),
        record(0, 0, 0, 1, 1, "[[4096]]"), record(0, 0, 0, 1, 1, "[[-2]]"), record(0, 0, 0, 1, 1, "[[1.5]]"),
        record(0, 0, 0, 1, 1, "[1]"), record(0, 0, 0, 1, 1, "[[1]"), record(0, 0, 5, 1, 1, "[[1]]"),
        record(-1, 0, 0, 1, 1, "[[1]]"), record(0, 4096, 0, 1, 1, "[[1]]"), std::string("{\"step\": 0}}\n"),
        std::string("not JSON\n"), std::string("[1]\n"), std::string("{\"a\": [}\n")}) {
    const std::string path = write("router_trace_rank0.jsonl", good + wrong + good);
    const Store store = load({path}, {});
    EXPECT_THAT(issues(store), ElementsAre(Pair("bad_event", 1))) << wrong;
    EXPECT_THAT(counts(*store.ranks[0]), ElementsAre(Pair("moe layer 0 expert 2 chosen", ElementsAre(Pair(0, 2)))));
  }
}

TEST_F(RouterTraceTest, RecordThatIsCutOffIsReported) {
  const std::string whole = record(0, 0, 0, 1, 1, "[[2]]"), cut = whole.substr(0, whole.size() - 5);
  const Store store = load({write("router_trace_rank0.jsonl", whole + cut)}, {});
  EXPECT_THAT(issues(store), ElementsAre(Pair("truncated", 1)));
  EXPECT_TRUE(store.files[0].truncated);
  const ms::test::Thrown none = ms::test::thrown_by([&] { load({write("router_trace_rank2.jsonl", cut)}, {}); });
  EXPECT_EQ(none.code, core::ErrorCode::kCorruptData);
  EXPECT_THAT(none.text, HasSubstr("has no routing record"));
}

TEST_F(RouterTraceTest, FilesWithTimesAreAnalysedApart) {
  const std::string routing = write("router_trace_rank1.jsonl", record(0, 0, 1, 1, 1, "[[2]]"));
  const std::string timed = write(
      "rank_0.json", R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, )"
                     R"("dur": 5, "args": {"device": 0, "stream": 7}}]})");
  EXPECT_THAT(ms::test::thrown_by([&] {
                load({routing, timed}, {});
              }).text,
              HasSubstr(core::cat(routing, " has no times, and ", timed, " has: give one of them")));
  const Store store = load({folder_.path().string()}, {});
  ASSERT_EQ(store.ranks.size(), 1U) << "what lies beside traces is skipped";
  EXPECT_EQ(store.ranks[0]->rank, 0);
  EXPECT_THAT(issues(store), ElementsAre(Pair("skipped_files", 1)));
}

TEST_F(RouterTraceTest, IsKnownByItsKeys) {
  EXPECT_TRUE(is_router_trace(record(0, 0, 0, 1, 1, "[[2]]")));
  EXPECT_FALSE(is_router_trace(R"({"traceEvents": [{"num_tokens": 1, "topk": 2}]})"));
  EXPECT_FALSE(is_router_trace(R"([{"num_tokens": 1, "topk": 2}])"));
  EXPECT_FALSE(is_router_trace(""));
}

}  // namespace
}  // namespace ms::profile
