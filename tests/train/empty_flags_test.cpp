// Values that a shell variable left empty: each is refused, a choice with the values that it may have.
#include "train/empty_flags.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace ms::train {
namespace {

std::string refusal(const std::vector<std::string>& more) {
  std::vector<std::string> flags = {"--num-layers", "4",  "--hidden-size", "64", "--num-attention-heads", "4",
                                    "--vocab-size", "96", "--seq-length",  "32", "--micro-batch-size",    "1",
                                    "--lr",         "1",  "--train-iters", "9"};
  flags.insert(flags.end(), more.begin(), more.end());
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  try {
    fields.parse_flags(flags);
    refuse_empty_flags(fields, config);
    config.resolve_and_validate(8);
  } catch (const core::Error& error) {
    EXPECT_EQ(core::exit_code(error.code()), 2);
    return error.what();
  }
  return "";
}

TEST(EmptyFlags, TextsAreRefusedByName) {
  for (const char* flag : {"--generate", "--freeze-parameters", "--save-tensors-filter", "--attention-mask-grid"})
    EXPECT_NE(refusal({flag, ""}).find(std::string(flag) + " is empty"), std::string::npos) << flag;
}

TEST(EmptyFlags, ChoicesAreRefusedWithTheirValues) {
  const std::pair<const char*, const char*> choices[] = {{"--context-parallel-algo", "ulysses_cp_algo"},
                                                         {"--context-parallel-kv-cache-policy", "half"},
                                                         {"--recompute-granularity", "selective"},
                                                         {"--non-persistent-ckpt-type", "local"}};
  for (const auto& [flag, value] : choices) {
    const std::string error = refusal({flag, ""});
    EXPECT_NE(error.find(std::string(flag) + " \"\""), std::string::npos) << flag << ": " << error;
    EXPECT_NE(error.find(value), std::string::npos) << flag << ": " << error;
  }
}

TEST(EmptyFlags, WhatIsNotGivenIsNotEmpty) { EXPECT_EQ(refusal({}), ""); }

}  // namespace
}  // namespace ms::train
