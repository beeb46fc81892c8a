// Shapes of an operator's inputs, from the JSON text that Kineto writes.
#include "profile/analysis/input_dims.h"

#include <gtest/gtest.h>

namespace ms::profile {
namespace {

using Shapes = std::vector<Dims>;

TEST(ParseDims, ListsOfSizesAreShapes) {
  EXPECT_EQ(parse_dims("[[32, 64], [64, 8], [], []]"), (Shapes{{32, 64}, {64, 8}, {}, {}}));
  EXPECT_EQ(parse_dims("[[7]]"), (Shapes{{7}}));
  EXPECT_EQ(parse_dims("[]"), Shapes{}) << "an operator without inputs";
}

TEST(ParseDims, IndentationDoesNotMatter) {
  const Shapes expected{{32, 64}, {8}};
  EXPECT_EQ(parse_dims("[[32,64],[8]]"), expected);
  EXPECT_EQ(parse_dims("[\n  [\n    32,\r\n\t64\n  ],\n  [ 8 ]\n]"), expected);
}

TEST(ParseDims, ListsOfTensorsAreNoShapes) {
  EXPECT_EQ(parse_dims("[[[32, 64], [64, 8]], []]"), std::nullopt);
  EXPECT_EQ(parse_dims("[32, 64]"), std::nullopt);
}

TEST(ParseDims, SizesAreWholeNumbersUpTo2To31) {
  EXPECT_EQ(parse_dims("[[2147483648]]"), (Shapes{{2147483648}}));
  EXPECT_EQ(parse_dims("[[2147483649]]"), std::nullopt);
  EXPECT_EQ(parse_dims("[[99999999999999999999]]"), std::nullopt);
  EXPECT_EQ(parse_dims("[[-1]]"), std::nullopt);
  EXPECT_EQ(parse_dims("[[\"a\"]]"), std::nullopt);
}

TEST(ParseDims, TextThatIsCutOrUnbalancedIsNoShape) {
  EXPECT_EQ(parse_dims("[[32, 64"), std::nullopt);
  EXPECT_EQ(parse_dims("[[32, 64]"), std::nullopt);
  EXPECT_EQ(parse_dims("[[32, 64]]]"), std::nullopt);
  EXPECT_EQ(parse_dims("][[32]]["), std::nullopt);
  EXPECT_EQ(parse_dims(""), std::nullopt);
}

}  // namespace
}  // namespace ms::profile
