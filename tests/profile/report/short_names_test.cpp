// Different names must look different in a table, however long they are.
#include "profile/report/short_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "profile/report/data_table.h"
#include "profile/report/html_tables.h"

namespace ms::profile {
namespace {

using testing::HasSubstr;

constexpr size_t kWidth = 52;

using Names = std::vector<std::string>;

TEST(ShortNames, NamesThatFitStayAndOthersLoseTheirMiddle) {
  const std::string longest(100, 'x');
  const Names out = distinct_short_names({"aten::addmm", "void at::native::relu<4>(int)", longest}, kWidth);
  EXPECT_EQ(out, (Names{"aten::addmm", "relu<4>", std::string(25, 'x') + ".." + std::string(25, 'x')}));
}

TEST(ShortNames, KernelsThatDifferInTheMiddleAreCutAroundTheDifference) {
  const std::string head = "ampere_fp16_s16816gemm_fp16_64x128_sliced", tail = "_ldg8_relu_f2f_stages_32x6_tn_execute";
  const Names out = distinct_short_names({head + "1x2" + tail, head + "1x4" + tail}, kWidth);
  EXPECT_THAT(out[0], HasSubstr("1x2"));
  EXPECT_THAT(out[1], HasSubstr("1x4"));
  for (const std::string& name : out) {
    EXPECT_LE(name.size(), kWidth);
    EXPECT_TRUE(name.starts_with("ampere_fp16_")) << name;
  }
}

TEST(ShortNames, KernelsThatDifferInWhatIsDroppedAreShownInFull) {
  const Names out = distinct_short_names(
      {"void a::copy<4>(int)", "void b::copy<4>(int)", "void b::copy<4>(float)", "void c::fill<4>(int)"}, kWidth);
  EXPECT_EQ(out, (Names{"void a::copy<4>(int)", "void b::copy<4>(int)", "void b::copy<4>(float)", "fill<4>"}));
}

TEST(ShortNames, EqualNamesGetEqualTexts) {
  const std::string longest = std::string(60, 'a') + "1" + std::string(60, 'a');
  const std::string other = std::string(60, 'a') + "2" + std::string(60, 'a');
  const Names out = distinct_short_names({longest, other, longest}, kWidth);
  EXPECT_EQ(out[0], out[2]);
  EXPECT_NE(out[0], out[1]);
}

TEST(ShortNames, ControlCharactersDoNotReachTheTerminal) {
  EXPECT_EQ(distinct_short_names({"a\x1b[31m"}, kWidth), Names{"a?[31m"});
}

TEST(ShortNames, RandomFamiliesStayDistinct) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::set<std::string> names;
    const std::string stem(120, 'k');
    for (int i = 0; i < 30; ++i) {
      std::string name = stem;
      for (int change = 0; change < 2; ++change) name[random() % name.size()] = static_cast<char>('a' + random() % 3);
      if (random() % 4 == 0) name.resize(random() % name.size());
      names.insert(name);
    }
    const Names all(names.begin(), names.end());
    const Names out = distinct_short_names(all, kWidth);
    EXPECT_EQ(std::set<std::string>(out.begin(), out.end()).size(), all.size());
  }
}

TEST(ShortNames, RowsOfATableAreToldApart) {
  DataTable table("kernels", "Kernels", {{"name", DataTable::Unit::kText}, {"count"}});
  const std::string head(40, 'g'), tail(40, 'h');
  table.add({head + "_tn" + tail, int64_t{1}});
  table.add({head + "_nt" + tail, int64_t{2}});
  EXPECT_THAT(table.text(false), HasSubstr("_tn"));
  EXPECT_THAT(table.text(false), HasSubstr("_nt"));
  EXPECT_THAT(html_table(table, {}, 10'000).html, HasSubstr("_tnhhhh"));
}

}  // namespace
}  // namespace ms::profile
