#include "core/io/yaml.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

using nlohmann::ordered_json;

ordered_json read(std::string_view text) { return parse_yaml(text, "x.yaml"); }

std::string error_of(std::string_view text) {
  const test::Thrown thrown = test::thrown_by([&] { read(text); });
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData) << text;
  EXPECT_EQ(thrown.text.find('\n'), std::string::npos) << thrown.text;
  return thrown.text;
}

// As PyYAML's safe_load reads them, except that numbers are text.
TEST(Yaml, ScalarsAreTextNullOrTruth) {
  EXPECT_EQ(read("a: 1.e-5\nb: 'true'\nc: \"~\"\nd: True\ne: off\nf:\ng: ~\nh: 99,1,0\n"),
            ordered_json({{"a", "1.e-5"},
                          {"b", "true"},
                          {"c", "~"},
                          {"d", true},
                          {"e", false},
                          {"f", nullptr},
                          {"g", nullptr},
                          {"h", "99,1,0"}}));
  EXPECT_EQ(read("# nothing\n"), nullptr);
}

TEST(Yaml, MappingsListsAndBlocks) {
  const ordered_json seen =
      read("top:\n  list: [0, a b]\n  more:\n  - 1\n  - {k: v}\n  text: |\n    two\n    lines\nlast: x # y\n");
  EXPECT_EQ(seen.dump(), R"({"top":{"list":["0","a b"],"more":["1",{"k":"v"}],"text":"two\nlines\n"},"last":"x"})");
}

TEST(Yaml, AliasesAndMergedMappings) {
  const ordered_json seen =
      read("base: &b {lr: 1, seed: 2}\nother: &o {lr: 5, x: 6}\nrun:\n  <<: [*b, *o]\n  seed: 3\nsame: *b\n");
  EXPECT_EQ(seen.at("run"), ordered_json({{"seed", "3"}, {"lr", "1"}, {"x", "6"}}));
  EXPECT_EQ(seen.at("same"), seen.at("base"));
}

TEST(Yaml, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a: 1\nb: [1, 2\n"), "x.yaml: line 3, column 1: not valid YAML: did not find expected ',' or ']'");
  EXPECT_EQ(error_of("a: 1\nb: 2\na: 3\n"), "x.yaml: line 3: \"a\" is given twice");
  EXPECT_EQ(error_of("a: !!python/object/apply:os.system [echo]\n"),
            "x.yaml: line 1: the tag tag:yaml.org,2002:python/object/apply:os.system is not supported");
  EXPECT_EQ(error_of("seed: 0123\n"),
            "x.yaml: line 1: 0123 begins with 0, which YAML reads as octal; write it without, or in quotes");
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n"), "x.yaml: line 3: a second document; one is read");
  EXPECT_EQ(error_of("? [a]\n: 1\n"), "x.yaml: line 1: a key is no text");
  EXPECT_EQ(error_of("<<: 3\n"), "x.yaml: line 1: << merges a mapping, or a list of mappings");
}

TEST(Yaml, DepthAndExpansionAreLimited) {
  EXPECT_NE(error_of(std::string(100, '[') + std::string(100, ']')).find("nested deeper than 64"), std::string::npos);
  EXPECT_NE(error_of("a: &a [*a]\n").find("nested deeper than 64"), std::string::npos);
  std::string lol = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string alias = cat("*a", i - 1);
    lol += cat("a", i, ": &a", i, " [", alias);
    for (int k = 1; k < 10; ++k) lol += ", " + alias;
    lol += "]\n";
  }
  EXPECT_NE(error_of(lol).find("more than 10000 values"), std::string::npos);
}

}  // namespace
}  // namespace ms::core
