#include "convert/option_uses.h"

#include <gmock/gmock.h>

#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using ::testing::HasSubstr;

std::string refusal(const ConvertOptions& options, Format from, Format to) {
  const test::Thrown thrown = test::thrown_by([&] { refuse_options_without_effect(options, from, to); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  return thrown.text;
}

TEST(OptionUsesTest, DefaultsAreNeverRefused) {
  const ConvertOptions defaults;
  for (const Format from : {Format::kNative, Format::kHuggingFace, Format::kDcp}) {
    for (const Format to : {Format::kNative, Format::kMegatron, Format::kGguf}) {
      refuse_options_without_effect(defaults, from, to);
    }
  }
}

TEST(OptionUsesTest, TargetOptionIsRefusedForOtherTargets) {
  ConvertOptions options;
  options.target_tensor_parallel_size = 2;
  refuse_options_without_effect(options, Format::kHuggingFace, Format::kMegatron);
  EXPECT_THAT(refusal(options, Format::kMegatron, Format::kHuggingFace),
              HasSubstr("--target-tensor-parallel-size applies to ms, mg and dist results; this converts mg to hf"));
}

TEST(OptionUsesTest, OptionOfSourceAndTargetIsAcceptedForEither) {
  ConvertOptions options;
  options.hf_cfg_dir = "folder";
  refuse_options_without_effect(options, Format::kDcp, Format::kNative);
  refuse_options_without_effect(options, Format::kNative, Format::kHuggingFace);
  EXPECT_THAT(refusal(options, Format::kNative, Format::kMegatron),
              HasSubstr("--hf-cfg-dir applies to mg, dcp, ds, ucp, meta and fsdp sources, and to hf, dcp, ucp, gguf "
                        "and hf-bin results; this converts ms to mg"));
}

TEST(OptionUsesTest, SourceOptionIsRefusedForOtherSources) {
  ConvertOptions options;
  options.true_vocab_size = 17;
  EXPECT_THAT(refusal(options, Format::kHuggingFace, Format::kMegatron),
              HasSubstr("--true-vocab-size applies to mg and dist sources; this converts hf to mg"));
}

}  // namespace
}  // namespace ms::convert
