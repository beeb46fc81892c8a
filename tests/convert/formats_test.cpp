#include "convert/formats.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using ::testing::HasSubstr;

TEST(FormatsTest, EveryFormatHasOneRowAndAName) {
  std::set<std::string_view> names;
  std::set<Format> kinds;
  for (const FormatRow& row : formats()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(kinds.insert(row.format).second) << row.name;
    EXPECT_EQ(&format_row(row.format), &row);
    EXPECT_EQ(parse_format(std::string(row.name), "--f"), row.format);
    EXPECT_EQ(format_name(row.format), row.name);
    EXPECT_TRUE(row.open != nullptr || row.make_target != nullptr) << row.name << " is neither read nor written";
    EXPECT_EQ(row.sign != nullptr, row.open != nullptr) << row.name << ": what is read is recognised by content";
  }
}

TEST(FormatsTest, UnknownNameListsAllNames) {
  const test::Thrown thrown = test::thrown_by([] { parse_format("onnx", "--save-model-type"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("--save-model-type \"onnx\": expected ms, hf, "));
  EXPECT_THAT(thrown.text, HasSubstr(" or gguf"));
}

}  // namespace
}  // namespace ms::convert
