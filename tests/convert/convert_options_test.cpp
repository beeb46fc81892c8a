#include "convert/convert_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using ::testing::HasSubstr;

void expect_refused(const std::function<void()>& parse, const char* text) {
  const test::Thrown thrown = test::thrown_by(parse);
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.text, HasSubstr("--flag"));
  EXPECT_THAT(thrown.text, HasSubstr(text));
}

TEST(ParseSizeBytes, AcceptsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_size_bytes("1000", "--flag"), 1000);
  EXPECT_EQ(parse_size_bytes("5GB", "--flag"), 5'000'000'000);
  EXPECT_EQ(parse_size_bytes("500MB", "--flag"), 500'000'000);
  EXPECT_EQ(parse_size_bytes("2GiB", "--flag"), int64_t{2} << 30);
}

TEST(ParseSizeBytes, RefusesInvalidSizes) {
  for (const char* text : {"", "GB", "-1GB", "5XB", "0", "99999999999GB", "1GB2"}) {
    expect_refused([&] { parse_size_bytes(text, "--flag"); }, text);
  }
}

TEST(ParseWeightDtype, AcceptsNamesAndTheCallersValue) {
  EXPECT_EQ(parse_weight_dtype("fp32", "--flag"), core::DType::kFp32);
  EXPECT_EQ(parse_weight_dtype("bf16", "--flag"), core::DType::kBf16);
  EXPECT_EQ(parse_weight_dtype("fp16", "--flag"), core::DType::kFp16);
  expect_refused([] { parse_weight_dtype("int8", "--flag"); }, "int8");
  expect_refused([] { parse_weight_dtype("int8", "--flag", "q8_0"); }, "q8_0");
}

TEST(ParseNormNaming, AcceptsBothNames) {
  EXPECT_EQ(parse_norm_naming("local", "--flag"), MegatronNaming::kLocal);
  EXPECT_EQ(parse_norm_naming("te", "--flag"), MegatronNaming::kTransformerEngine);
  expect_refused([] { parse_norm_naming("mcore", "--flag"); }, "mcore");
}

TEST(ParseArgsForm, AcceptsAllNames) {
  EXPECT_EQ(parse_args_form("namespace", "--flag"), MegatronArgsForm::kNamespace);
  EXPECT_EQ(parse_args_form("dict", "--flag"), MegatronArgsForm::kDict);
  EXPECT_EQ(parse_args_form("omit", "--flag"), MegatronArgsForm::kOmit);
  expect_refused([] { parse_args_form("none", "--flag"); }, "none");
}

}  // namespace
}  // namespace ms::convert
