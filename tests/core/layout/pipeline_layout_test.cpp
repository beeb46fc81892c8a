#include "core/layout/pipeline_layout.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::layout {
namespace {

using Counts = std::vector<int64_t>;

// The examples of pipeline_parallel_layer_layout.py.
TEST(PipelineLayout, RepeatsLettersAndParentheses) {
  EXPECT_EQ(parse_pipeline_layout("Ettt|tt|ttL").layers, (Counts{3, 2, 2}));
  const PipelineLayout deep = parse_pipeline_layout("Ettt|(tt|)*29,m|L");
  EXPECT_EQ(deep.layers.size(), 32U);
  EXPECT_EQ(deep.layers[0], 3);
  EXPECT_EQ(deep.layers[29], 2);
  EXPECT_EQ(deep.layers[30], 0);
  EXPECT_EQ(deep.mtp_layers[30], 1);
  EXPECT_EQ(deep.layers[31], 0);
  EXPECT_EQ(parse_pipeline_layout("E,t*3|(tt|t)*2|L").layers, (Counts{3, 2, 3, 1, 0}));
  EXPECT_EQ(parse_pipeline_layout("E|(|t)*2L").layers, (Counts{0, 0, 1, 1}));
  EXPECT_EQ(parse_pipeline_layout("E((t|)*2)*2L").layers, (Counts{1, 1, 1, 1, 0}));
}

TEST(PipelineLayout, WrongLayoutsAreErrorsThatNameTheFlag) {
  for (const auto& [text, word] :
       {std::pair("", "E"), std::pair("tt|ttL", "begin with the embedding"),
        std::pair("|Ett|ttL", "begin with the embedding"), std::pair("Ett|tt", "end with the loss"),
        std::pair("EttL|tt|", "end with the loss"), std::pair("Ett|E|L", "E may stand there only once"),
        std::pair("EtLtL", "L may stand there only once"), std::pair("Et|m|tL", "before those of multi-token"),
        std::pair("Etx|L", "character 3"), std::pair("E(tt|L", "not closed"), std::pair("Ett)|L", "closes nothing"),
        std::pair("Et*|L", "no number"), std::pair("Et*99999999999999999999L", "more than"),
        std::pair("E((t*60000)*60000)*60000L", "more than"), std::pair("E(((((((((t)))))))))L", "within each other")}) {
    const auto thrown = test::thrown_by([&, layout = text] { parse_pipeline_layout(layout); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument) << text;
    EXPECT_NE(thrown.text.find("--pipeline-model-parallel-layout"), std::string::npos) << thrown.text;
    EXPECT_NE(thrown.text.find(word), std::string::npos) << thrown.text;
  }
}

}  // namespace
}  // namespace ms::layout
