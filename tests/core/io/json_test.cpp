#include "core/io/json.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

std::string error_of(std::string_view text) {
  const test::Thrown thrown = test::thrown_by([&] { parse_json(text, "x.json"); });
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
  return thrown.text;
}

TEST(Json, ErrorNamesThePositionWithoutIdentifierOrInput) {
  EXPECT_EQ(error_of("{\"a\": nul\n}"),
            "x.json: not JSON: line 2, column 0: syntax error while parsing value - invalid literal");
  EXPECT_EQ(error_of("{\"a\" 1}"),
            "x.json: not JSON: line 1, column 6: syntax error while parsing object separator - unexpected number "
            "literal; expected ':'");
  EXPECT_EQ(error_of(""),
            "x.json: not JSON: line 1, column 1: syntax error while parsing value - unexpected end of "
            "input; expected '[', '{', or a literal");
  EXPECT_EQ(error_of("{\"a\": \"\x01'; expected\"}").find("json.exception"), std::string::npos);
}

TEST(Json, DumpReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(dump_json({{"path", "a\xff"}}), "{\"path\":\"a\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace ms::core
