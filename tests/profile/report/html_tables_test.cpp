// Tables in the page: the cells of the text, the rows of the shown ranks, within their bytes.
#include "profile/report/html_tables.h"

#include <gtest/gtest.h>

namespace ms::profile {
namespace {

using Unit = DataTable::Unit;

DataTable table_of_ranks(int ranks, int rows) {
  DataTable table("t", "T", {{"rank"}, {"name", Unit::kText}, {"sum", Unit::kTime}, {"of_all", Unit::kShare}});
  for (int rank = 0; rank < ranks; ++rank) {
    for (int i = 0; i < rows; ++i) {
      table.add({int64_t{rank}, "kernel<" + std::to_string(i) + ">", Ns{1'234'567}, Share{1, 3}});
    }
  }
  return table;
}

TEST(HtmlTables, CellsAreThoseOfTheText) {
  EXPECT_EQ(html_table(table_of_ranks(1, 1), {0}, 10'000).html,
            "<table class=\"sortable\"><thead><tr><th scope=\"col\">rank</th><th scope=\"col\" class=\"text\">name</th>"
            "<th scope=\"col\">sum ms</th><th scope=\"col\">of all %</th></tr></thead><tbody>\n"
            "<tr data-rank=\"0\"><td>0</td><td class=\"text\">kernel&lt;0&gt;</td><td>1.235</td><td>33.33</td></tr>\n"
            "</tbody></table>\n");
}

TEST(HtmlTables, OnlyShownRanksHaveRows) {
  const HtmlTable shown = html_table(table_of_ranks(5, 2), {1, 3}, 10'000);
  EXPECT_EQ(shown.rows, 4u);
  EXPECT_EQ(shown.shown, 4u);
  EXPECT_EQ(shown.html.find("data-rank=\"0\""), std::string::npos);
  EXPECT_NE(shown.html.find("data-rank=\"3\""), std::string::npos);
}

TEST(HtmlTables, RanksShareTheBytesEvenly) {
  const HtmlTable shown = html_table(table_of_ranks(4, 100), {0, 1, 2, 3}, 4000);
  EXPECT_LT(shown.html.size(), 4400u);
  EXPECT_EQ(shown.rows, 400u);
  EXPECT_LT(shown.shown, 400u);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_NE(shown.html.find("data-rank=\"" + std::to_string(rank) + "\""), std::string::npos) << rank;
  }
}

TEST(HtmlTables, NoRowFitsIntoNoBytes) { EXPECT_EQ(html_table(table_of_ranks(2, 2), {0, 1}, 0).shown, 0u); }

}  // namespace
}  // namespace ms::profile
