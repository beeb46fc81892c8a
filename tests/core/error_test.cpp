#include "core/error.h"

#include <gtest/gtest.h>

#include "tests/support/thrown.h"

namespace ms::core {
namespace {

TEST(Check, SourcePathIsRelativeToTheRepository) {
  const test::Thrown thrown = test::thrown_by([] { MS_CHECK(1 + 1 == 3, "sums"); });
  EXPECT_EQ(thrown.code, ErrorCode::kInternal);
  EXPECT_EQ(thrown.text.rfind("internal error at tests/core/error_test.cpp:", 0), 0u) << thrown.text;
  EXPECT_NE(thrown.text.find("1 + 1 == 3: sums. Please report it."), std::string::npos) << thrown.text;
}

}  // namespace
}  // namespace ms::core
