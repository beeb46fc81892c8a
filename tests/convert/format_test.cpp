#include "convert/format.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParseTargetFormat, UnknownNameListsTheFormatsThatAreWritten) {
  const test::Thrown thrown = test::thrown_by([] { parse_target_format("ds", "--save-model-type"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("--save-model-type \"ds\": expected ms, hf, "));
  EXPECT_THAT(thrown.text, HasSubstr(" or gguf"));
  EXPECT_THAT(thrown.text, Not(HasSubstr("meta")));
}

TEST(ParseSourceFormat, UnknownNameListsTheFormatsThatAreRead) {
  const test::Thrown thrown = test::thrown_by([] { parse_source_format("gguf", "--load-model-type"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("meta"));
}

}  // namespace
}  // namespace ms::convert
