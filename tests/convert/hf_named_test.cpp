#include "convert/hf_named.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(HfNamed, WrapperPartsAreRemoved) {
  EXPECT_EQ(without_wrappers("_orig_mod.model.layers.0._checkpoint_wrapped_module.mlp.w"), "model.layers.0.mlp.w");
  EXPECT_EQ(without_wrappers("_fsdp_wrapped_module._orig_mod.a"), "a");
  EXPECT_EQ(without_wrappers("not_orig_mod.a"), "not_orig_mod.a");
}

TEST(HfNamed, PrefixesEndAtWordBoundaries) {
  const std::string names[] = {"norm.weight", "model.norm.weight", "model.xnorm.weight", "other"};
  EXPECT_THAT(prefixes_before(names, "norm.weight"), ElementsAre("", "model."));
}

TEST(HfNamed, FamilyPrefixIsFoundByItsEmbedding) {
  const std::string names[] = {"app.lm_head.weight", "app.model.embed_tokens.weight"};
  EXPECT_EQ(prefix_of_family(names, find_family("llama"), "here"), "app.");
  const std::string bare[] = {"wte.weight"};
  EXPECT_EQ(prefix_of_family(bare, find_family("gpt2"), "here"), "");
  const std::string twice[] = {"a.model.embed_tokens.weight", "b.model.embed_tokens.weight"};
  const test::Thrown several = test::thrown_by([&] { prefix_of_family(twice, find_family("llama"), "here"); });
  EXPECT_EQ(several.code, ErrorCode::kCorruptData);
  EXPECT_THAT(several.text, HasSubstr("occurs several times: under \"a.\" and under \"b.\""));
  EXPECT_EQ(test::code_of([&] { prefix_of_family(bare, find_family("llama"), "here"); }), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace ms::convert
