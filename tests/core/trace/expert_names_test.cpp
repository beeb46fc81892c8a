// Names of counters and annotations of experts: both ways, and what is none.
#include "core/trace/expert_names.h"

#include <gtest/gtest.h>

namespace ms::core::trace {
namespace {

TEST(ExpertNames, CountersBothWays) {
  for (const auto count : {ExpertCount::kRows, ExpertCount::kPartRows, ExpertCount::kChosen, ExpertCount::kAllTokens}) {
    for (const ExpertLayer layer : {ExpertLayer{-1, 0}, ExpertLayer{-1, 61}, ExpertLayer{1, 0}}) {
      const ExpertCounter counter{layer, 255, count};
      EXPECT_EQ(parse_expert_counter(expert_counter_name(counter)), counter) << expert_counter_name(counter);
    }
  }
  const ExpertCounter placed{{-1, 3}, 12, ExpertCount::kAllTokens, 1};
  EXPECT_EQ(expert_counter_name(placed), "moe layer 3 expert 12 tokens on rank 1");
  EXPECT_EQ(parse_expert_counter("moe layer 3 expert 12 tokens on rank 1"), placed);
  EXPECT_EQ(expert_counter_name({{-1, 3}, 12, ExpertCount::kRows}), "moe layer 3 expert 12 rows");
  EXPECT_EQ(expert_counter_name({{0, 0}, 1, ExpertCount::kChosen}), "moe mtp 0 layer 0 expert 1 chosen");
}

TEST(ExpertNames, ExchangesBothWays) {
  for (int i = 0; i < kNumExpertExchanges; ++i) {
    const ExchangeOfLayer of{static_cast<ExpertExchange>(i), {i - 1, 7}};
    EXPECT_EQ(parse_expert_exchange(expert_exchange_name(of.exchange, of.layer)), of);
  }
  EXPECT_EQ(expert_exchange_name(ExpertExchange::kCombineGradient, {-1, 3}), "moe-combine-gradient layer 3");
}

TEST(ExpertNames, OthersAreNone) {
  for (const char* name :
       {"", "moe", "moe layer", "moe layer 3 expert 12", "moe layer 3 expert 12 ", "moe layer 3 expert 12 row",
        "moe layer -3 expert 12 rows", "moe layer 3 expert 4096 rows", "moe layer 4096 expert 1 rows",
        "moe layer 99999999999999999999 expert 1 rows", "moe mtp 0 expert 1 rows", "moe layer 3 expert 12 rows again",
        "moe layer 3 expert 12 rows on rank 1", "moe layer 3 expert 12 tokens on rank ",
        "moe layer 3 expert 12 tokens on rank 1 2"})
    EXPECT_FALSE(parse_expert_counter(name)) << name;
  for (const char* name : {"", "moe-dispatch", "moe-dispatch layer", "moe-dispatch layer 3 ", "moe-send layer 3"})
    EXPECT_FALSE(parse_expert_exchange(name)) << name;
}

}  // namespace
}  // namespace ms::core::trace
