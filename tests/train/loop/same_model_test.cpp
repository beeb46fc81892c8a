// Which fields must equal the checkpoint's, and which may differ.
#include "train/loop/same_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::train {
namespace {

using testing::HasSubstr;

core::TransformerConfig model() {
  core::TransformerConfig m;
  m.num_layers = 2;
  m.hidden_size = 64;
  m.num_attention_heads = 8;
  m.max_position_embeddings = 128;
  return m;
}

std::string refusal(const core::TransformerConfig& wanted) {
  const test::Thrown thrown = test::thrown_by([&] { check_same_model(model(), wanted); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kInvalidArgument);
  return thrown.text;
}

TEST(SameModel, FieldsThatDoNotAffectWeightsMayDiffer) {
  core::TransformerConfig wanted = model();
  EXPECT_NO_THROW(check_same_model(model(), wanted));
  wanted.hidden_dropout = 0.1;
  wanted.attention_dropout = 0.2;
  wanted.init_method_std = 0.5;
  wanted.make_vocab_size_divisible_by = 8;
  EXPECT_NO_THROW(check_same_model(model(), wanted));
  // As many groups as heads is the same attention in other words.
  wanted.group_query_attention = true;
  wanted.num_query_groups = 8;
  EXPECT_NO_THROW(check_same_model(model(), wanted));
}

TEST(SameModel, ErrorNamesTheFlagAndBothValues) {
  core::TransformerConfig wanted = model();
  wanted.num_layers = 3;
  EXPECT_THAT(refusal(wanted), HasSubstr("--num-layers is 3 but the checkpoint was made with 2"));
  wanted = model();
  wanted.group_query_attention = true;
  wanted.num_query_groups = 2;
  EXPECT_THAT(refusal(wanted), HasSubstr("--num-query-groups is 2 but the checkpoint was made with 8"));
  wanted = model();
  wanted.mtp_num_layers = 1;
  EXPECT_THAT(refusal(wanted), HasSubstr("cannot be added or left out yet: give --mtp-num-layers 0"));
}

TEST(SameModel, LengthMattersForLearnedPositionsOnly) {
  core::TransformerConfig saved = model(), wanted = model();
  wanted.max_position_embeddings = 256;
  saved.position_embedding_type = wanted.position_embedding_type = "rope";
  EXPECT_NO_THROW(check_same_model(saved, wanted));
  saved.position_embedding_type = wanted.position_embedding_type = "learned_absolute";
  EXPECT_THAT(test::thrown_by([&] { check_same_model(saved, wanted); }).text, HasSubstr("--max-position-embeddings"));
}

}  // namespace
}  // namespace ms::train
