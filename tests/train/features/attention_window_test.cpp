// Megatron's and MindSpeed's words for a window are the one of --sliding-window, or refused.
#include "train/features/attention_window.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/thrown.h"
#include "train/config.h"

namespace ms::train {
namespace {

using Flags = std::vector<std::string>;

std::string text_of(const Flags& flags) {
  std::string text;
  for (const std::string& flag : flags) text += flag + " ";
  return text;
}

TrainerConfig resolved(const Flags& flags) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  Flags all = {"--num-layers", "4",  "--hidden-size",      "64", "--num-attention-heads", "4", "--vocab-size", "96",
               "--seq-length", "32", "--micro-batch-size", "1",  "--train-iters",         "9", "--lr",         "1e-3"};
  all.insert(all.end(), flags.begin(), flags.end());
  fields.parse_flags(all);
  config.resolve_and_validate(1);
  return config;
}

std::vector<int64_t> windows(const Flags& flags) { return resolved(flags).model.windows_of_layers(); }

TEST(AttentionWindow, IsThatOfSlidingWindow) {
  const std::vector<int64_t> of_five = windows({"--sliding-window", "5"});
  EXPECT_EQ(of_five, std::vector<int64_t>(4, 5));
  const Flags same[] = {{"--window-size", "4,0"},
                        {"--window-size", "(4, 0)"},
                        {"--window-size", "4,-1"},  // a causal mask hides what is behind
                        {"--window-size", "4,0", "--sliding-window", "5"},
                        {"--pre-tockens", "4"},
                        {"--sparse-mode", "0", "--pre-tockens", "4", "--next-tockens", "7"},
                        {"--sparse-mode", "4", "--pre-tockens", "4", "--next-tockens", "0"},
                        {"--sparse-mode", "4", "--pre-tockens", "4", "--window-size", "4,0"}};
  for (const Flags& flags : same) EXPECT_EQ(windows(flags), of_five) << text_of(flags);
  const std::vector<int64_t> none(4, 0);
  const Flags causal[] = {{},
                          {"--window-size=-1,0"},
                          {"--sparse-mode", "0"},
                          {"--sparse-mode", "1", "--pre-tockens", "4"},
                          {"--sparse-mode", "2", "--pre-tockens", "4"},
                          {"--sparse-mode", "3", "--pre-tockens", "4", "--next-tockens", "9"},
                          {"--sparse-mode", "4"},
                          {"--window-size", "4,0", "--window-attn-skip-freq", "1"}};
  for (const Flags& flags : causal) EXPECT_EQ(windows(flags), none) << text_of(flags);
  EXPECT_EQ(windows({"--window-size", "4,0", "--window-attn-skip-freq", "2"}), (std::vector<int64_t>{5, 0, 5, 0}));
  EXPECT_EQ(windows({"--pre-tockens", "4", "--window-attn-skip-freq", "[1,0,0,1]"}),
            (std::vector<int64_t>{5, 0, 0, 5}));
}

// A configuration is resolved once more, by tools and by runs that choose stages.
TEST(AttentionWindow, IsTheSameResolvedTwice) {
  for (const Flags& flags : {Flags{"--window-size", "4,0", "--window-attn-skip-freq", "2"},
                             Flags{"--window-size", "4,0", "--window-attn-skip-freq", "1"},
                             Flags{"--pre-tockens", "4", "--window-attn-skip-freq", "[0,0,0,0]"}}) {
    TrainerConfig config = resolved(flags);
    const core::TransformerConfig model = config.model;
    config.resolve_and_validate(1);
    EXPECT_EQ(config.model, model) << text_of(flags);
  }
}

TEST(AttentionWindow, RefusesWhatIsNoWindowOfKeysBeforeAQuery) {
  struct Case {
    Flags flags;
    core::ErrorCode code;
    const char* text;
  };
  constexpr core::ErrorCode kInvalid = core::ErrorCode::kInvalidArgument, kUnsupported = core::ErrorCode::kUnsupported;
  const Case cases[] = {
      {{"--window-size", "4"}, kInvalid, "--window-size 4: expected L,R"},
      {{"--window-size", "x,0"}, kInvalid, "--window-size x,0: expected L,R"},
      {{"--window-size", "4,0,0"}, kInvalid, "--window-size 4,0,0: expected L,R"},
      {{"--window-size=-2,0"}, kInvalid, "--window-size -2,0: expected L,R"},
      {{"--window-size", "4,-2"}, kInvalid, "--window-size 4,-2: expected 4,0"},
      {{"--window-size", "4,1"}, kUnsupported, "give 4,0"},
      {{"--window-size", "4,0", "--sliding-window", "4"}, kInvalid, "the same would be --sliding-window 5"},
      {{"--window-size", "4,0", "--pre-tockens", "5"}, kInvalid, "the same would be --sliding-window 6"},
      {{"--window-size", "4,0", "--interleave-sliding-window", "5"}, kInvalid, "--interleave-sliding-window 5 exclude"},
      {{"--pre-tockens", "-1"}, kInvalid, "--pre-tockens -1: expected a number of keys"},
      {{"--next-tockens", "-1"}, kInvalid, "--next-tockens -1: expected a number of keys"},
      {{"--sparse-mode", "9"}, kInvalid, "--sparse-mode 9: expected 0 to 6"},
      {{"--sparse-mode", "4", "--next-tockens", "1"}, kUnsupported, "a query would see the token that it predicts"},
      {{"--sparse-mode", "5"}, kInvalid, "needs --prefix-length"},
      {{"--sparse-mode", "7"}, kUnsupported, "--reset-attention-mask"}};
  for (const Case& of : cases) {
    const test::Thrown thrown = test::thrown_by([&] { resolved(of.flags); });
    EXPECT_EQ(thrown.code, of.code) << text_of(of.flags);
    EXPECT_NE(thrown.text.find(of.text), std::string::npos) << text_of(of.flags) << ": " << thrown.text;
  }
}

}  // namespace
}  // namespace ms::train
