// The text of --log-straggler.
#include "train/loop/straggler.h"

#include <gtest/gtest.h>

namespace ms::train {
namespace {

TEST(Straggler, NamesTheRankThatDelaysTheOthersAndWhoWaitsMost) {
  EXPECT_EQ(straggler_text({-1.5, -1.0, 3.0, -0.5}, 10, 1),
            "straggler: rank 2 made the others wait 3.00 s (10.0 % of their time) | waited most: rank 0, 1.50 s");
}

TEST(Straggler, LittleIsNoStraggler) {
  EXPECT_EQ(straggler_text({0.1, -0.1}, 10, 1),
            "no straggler: rank 0 made the others wait 0.10 s (1.0 % of their time) | waited most: rank 1, 0.10 s");
}

TEST(Straggler, NamesAsManyAsAsked) {
  const std::string text = straggler_text({1, -2, 1.5}, 2, 9);
  EXPECT_EQ(
      text,
      "straggler: rank 2 made the others wait 1.50 s (37.5 % of their time), rank 0 made the others wait 1.00 s "
      "(25.0 % of their time), rank 1 made the others wait -2.00 s (-50.0 % of their time) | waited most: rank 1, "
      "2.00 s, rank 0, -1.00 s, rank 2, -1.50 s");
}

}  // namespace
}  // namespace ms::train
