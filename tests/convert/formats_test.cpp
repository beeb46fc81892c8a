#include "convert/formats.h"

#include <gmock/gmock.h>

#include <set>

namespace ms::convert {
namespace {

TEST(FormatsTest, EveryFormatHasOneRowAndOneName) {
  std::set<std::string_view> names;
  std::set<Format> kinds;
  for (const FormatRow& row : formats()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(kinds.insert(row.format).second) << row.name;
    EXPECT_EQ(&format_row(row.format), &row);
    if (row.open != nullptr) {
      EXPECT_EQ(parse_source_format(std::string(row.name), "--f"), row.format);
    }
    if (row.make_target != nullptr) {
      EXPECT_EQ(parse_target_format(std::string(row.name), "--f"), row.format);
    }
    EXPECT_EQ(format_name(row.format), row.name);
    EXPECT_TRUE(row.open != nullptr || row.make_target != nullptr) << row.name << " is neither read nor written";
    EXPECT_EQ(row.sign != nullptr, row.open != nullptr) << row.name << ": what is read is recognised by content";
  }
}

}  // namespace
}  // namespace ms::convert
