// Parsing of flags and files into fields: which values each kind of flag takes. train/config_test.cpp tests a real
// configuration.
#include "core/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

struct Example {
  std::string save = "default";
  double weight_decay = 0.01;
  int64_t seed = 1;
  std::optional<double> loss_scale;
  std::vector<std::string> data_path;
  std::vector<int64_t> profile_ranks;
  bool bf16 = false;
  bool print_config = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("save", &Example::save, "A folder");
    field("weight_decay", &Example::weight_decay, "A number");
    field("seed", &Example::seed, "A whole number");
    field("loss_scale", &Example::loss_scale, "A number or none");
    field("data_path", &Example::data_path, "Texts");
    field("profile_ranks", &Example::profile_ranks, "Whole numbers");
    field("bf16", &Example::bf16, "A switch");
  }

  ConfigFields all() {
    ConfigFields config;
    config.add("example", *this);
    config.alias("output", "save");
    config.alias("half", "bf16", "true");
    config.stand_for("usual", {"--weight-decay", "0.1"});
    config.accept_with_notice("backend", 1, "one backend here");
    config.accept_with_notice("spec", ConfigFields::kAnyNumber, "no specs here");
    config.accept_with_notice("fused", 0, "always fused");
    config.refuse("rampup", "not built");
    config.program_flag("print-config", &print_config);
    return config;
  }
};

// The error's text, or "" if there is none.
std::string problem(const std::vector<std::string>& args) {
  Example example;
  try {
    example.all().parse_flags(args);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  return "";
}

TEST(ConfigFields, MissingValueDoesNotConsumeTheNextFlag) {
  for (const char* wants : {"--save", "--weight-decay", "--seed", "--loss_scale", "--data-path", "--profile-ranks",
                            "--output", "--backend", "--spec"}) {
    for (const char* next :
         {"--bf16", "--no-bf16", "--weight_decay", "--weight-decay=1", "--output", "--half", "--usual", "--backend",
          "--fused", "--rampup", "--print-config", "--unknown", "-x", "--"}) {
      std::string flag = wants;
      std::replace(flag.begin(), flag.end(), '_', '-');
      EXPECT_EQ(problem({wants, next, "2"}).rfind(flag + ": expected ", 0), 0u) << wants << " " << next;
    }
    EXPECT_NE(problem({wants}), "") << wants;
  }
}

// With an unquoted list, as `--lr 1e-3 1e-4`, the last value would silently count.
TEST(ConfigFields, AFlagOfOneValueLeavesTheWordAfterIt) {
  Example example;
  EXPECT_EQ(example.all().parse_flags({"--seed", "3", "4", "--backend", "x", "y", "--data-path", "a", "b"}),
            (std::vector<std::string>{"4", "y"}));
  EXPECT_EQ(example.seed, 3);
  EXPECT_EQ(example.data_path, (std::vector<std::string>{"a", "b"}));
}

TEST(ConfigFields, OfAFlagGivenTwiceTheLastCounts) {
  Example example;
  example.all().parse_flags({"--data-path", "a", "b", "--seed", "2", "--profile-ranks=0,1", "--data-path", "c",
                             "--seed", "5", "--profile-ranks", "7"});
  EXPECT_EQ(example.data_path, std::vector<std::string>{"c"});
  EXPECT_EQ(example.profile_ranks, std::vector<int64_t>{7});
  EXPECT_EQ(example.seed, 5);
}

TEST(ConfigFields, ExplicitValuesMayLookLikeFlags) {
  Example example;
  example.all().parse_flags({"--save=--bf16", "--seed", "-1", "--weight-decay", "-1e-5", "--loss-scale", "-.5",
                             "--data-path", "a", "-", "b c", "--profile-ranks", "-1", "3"});
  EXPECT_EQ(example.save, "--bf16");
  EXPECT_FALSE(example.bf16);
  EXPECT_EQ(example.seed, -1);
  EXPECT_EQ(example.weight_decay, -1e-5);
  EXPECT_EQ(example.loss_scale, -.5);
  EXPECT_EQ(example.data_path, (std::vector<std::string>{"a", "-", "b c"}));
  EXPECT_EQ(example.profile_ranks, (std::vector<int64_t>{-1, 3}));
  example.all().parse_flags({"--save", ""});
  EXPECT_EQ(example.save, "");
}

TEST(ConfigFields, ProgramFlagsAreNotPartOfTheConfiguration) {
  Example example;
  ConfigFields fields = example.all();
  fields.parse_flags({"--print_config", "--bf16"});
  EXPECT_TRUE(example.print_config);
  EXPECT_TRUE(fields.given("print_config"));
  EXPECT_FALSE(fields.dump()["example"].contains("print_config"));
  EXPECT_EQ(fields.dump().size(), 1u);
  EXPECT_EQ(fields.table().find("print_config"), std::string::npos);
  EXPECT_EQ(fields.help().find("--print-config"), std::string::npos);
  EXPECT_EQ(test::code_of([&] {
              fields.load_json(nlohmann::json{{"print_config", true}}, "x.json");
            }),
            ErrorCode::kInvalidArgument);
}

TEST(ConfigFields, UnknownNamesSuggestTheNearestKnownName) {
  EXPECT_EQ(problem({"--wieght-decay", "1"}), "unknown flag --wieght-decay. Did you mean --weight-decay?");
  EXPECT_EQ(problem({"--print-confg"}), "unknown flag --print-confg. Did you mean --print-config?");
  EXPECT_EQ(problem({"--frobnicate"}), "unknown flag --frobnicate");
  Example example;
  EXPECT_EQ(test::thrown_by([&] {
              example.all().load_json(nlohmann::json{{"wieght_decay", 1}}, "x.json");
            }).text,
            "x.json: unknown key \"wieght_decay\". Did you mean weight_decay?");
}

}  // namespace
}  // namespace ms::core
