#include "profile/ingest/rank_of_path.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::profile {
namespace {

TEST(RankOfPath, FindsTheRankInTheFileName) {
  const RankOfPath rank_of("");
  EXPECT_FALSE(rank_of.has_pattern());
  EXPECT_EQ(rank_of("rank9/rank-3.json.gz"), 3);
  EXPECT_EQ(rank_of("x/RANK_00012.mstrace"), 12);
  EXPECT_EQ(rank_of("host.worker7.pt.trace.json"), 7);
  EXPECT_EQ(rank_of("rank/trace.json"), std::nullopt);
  EXPECT_EQ(rank_of("rank12345678901.json"), std::nullopt);
}

TEST(RankOfPath, UsesTheExpressionOnThePath) {
  EXPECT_EQ(RankOfPath("node(\\d+)/")("run/Node04/rank7.json"), 4);
  EXPECT_EQ(RankOfPath("\\d+")("run/12/x"), 12);
  EXPECT_EQ(RankOfPath("node(\\d+)/")("run/rank7.json"), std::nullopt);
  EXPECT_EQ(RankOfPath("(node)")("node"), std::nullopt) << "not a number";
  EXPECT_EQ(test::thrown_by([] { RankOfPath("("); }).code, core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ms::profile
