// The report as text: self-contained, harmless whatever names say, small whatever the trace. In a browser:
// report_page_test.py.
#include "profile/report/html_report.h"

#include <gtest/gtest.h>

#include "profile/ingest/load.h"
#include "profile/report/data_table.h"
#include "profile/sections.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

std::string report_of(const std::string& folder, const std::string& title) {
  const Store store = load({folder}, {});
  return html_report(store, analyze(store, sections::every()), {title});
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(HtmlReport, NamesCannotEndWhatTheyLieIn) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 1000);
  maker.kernel("</script><img src=x onerror=alert(1)>", 0, 500);
  maker.kernel("<!--<script>", 500, 600);
  maker.kernel("\xff\xfe\x01\"'&", 600, 700);
  maker.finish();
  const std::string html = report_of(folder.path().string(), "<b>\"title\"&");
  EXPECT_EQ(count(html, "</script"), count(html, "<script")) << "each script is ended once, by us";
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(html.find("<!--"), std::string::npos);
  EXPECT_EQ(html.find("<b>\""), std::string::npos);
  EXPECT_EQ(html.find('\x01'), std::string::npos);
  EXPECT_EQ(html.find('\xff'), std::string::npos) << "valid UTF-8";
}

TEST(HtmlReport, NeedsNoNetwork) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  maker.kernel("gemm", 0, 500);
  maker.finish();
  const std::string html = report_of(folder.path().string(), "t");
  for (const char* outside : {"http:", "https:", "src=", "@import", "url(", "fetch(", "XMLHttpRequest", "<link"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(html.find("gemm"), std::string::npos);
}

TEST(HtmlReport, IsSmallWhateverTheNames) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 100'000'000);
  for (int i = 0; i < 60'000; ++i) {
    maker.kernel(core::cat("kernel_with_a_name_of_its_own_", i, std::string(200, '<')), 1000 * i, 1000 * i + 500);
    if (i % 10'000 == 0) maker.flush();
  }
  maker.finish();
  EXPECT_LT(report_of(folder.path().string(), "t").size(), 5'000'000u);
}

TEST(HtmlReport, IsSmallForThousandsOfRanksAndMillionsOfSlices) {
  const test::TemporaryFolder folder;
  constexpr int kRanks = 2000, kSteps = 10, kOps = 50;
  std::vector<int> all;
  for (int rank = 0; rank < kRanks; ++rank) all.push_back(rank);
  for (int rank = 0; rank < kRanks; ++rank) {
    test::TraceMaker maker(folder.path(), rank, kRanks);
    uint32_t correlation = 0;
    for (int step = 0; step < kSteps; ++step) {
      const int64_t t = int64_t{1'000'000} * step;
      maker.host(core::cat("ProfilerStep#", step), t, t + 1'000'000);
      for (int i = 0; i < kOps; ++i) {
        const int64_t at = t + 16'000 * i;
        maker.launch(++correlation, at, at + 4'000);
        // One late rank, and names that no other rank has.
        maker.kernel(core::cat("kernel_", i, "_of_rank_", rank % 500, std::string(100, 'x')), at + 5'000,
                     at + (rank == 1234 ? 15'900 : 12'000), correlation);
      }
      if (step == 0) maker.comm("allreduce", "world", all, t + 900'000, t + 950'000, 1 << 20);
    }
    maker.finish();
  }
  const std::string html = report_of(folder.path().string(), "t");
  EXPECT_LT(html.size(), 5'000'000u);
  EXPECT_NE(html.find("64 of 2000 ranks are shown"), std::string::npos);
  EXPECT_NE(html.find("<option value=\"1234\""), std::string::npos) << "the rank that computes longest is among them";
  EXPECT_NE(html.find("\"lanes\":[{"), std::string::npos) << "and there is a timeline";
}

TEST(HtmlReport, ContentsLeadToEverySectionAndTable) {
  const test::TemporaryFolder folder;
  for (const int rank : {0, 1}) {
    test::TraceMaker maker(folder.path(), rank, 2);
    maker.host("ProfilerStep#1", 0, 1000);
    maker.launch(1, 0, 10);
    maker.kernel("gemm", 20, 500, 1);
    maker.comm("allreduce", "dp", {0, 1}, 500, 700);
    maker.memory(10, 0x10, 4096, 4096);
    maker.finish();
  }
  const std::string html = report_of(folder.path().string(), "t");
  size_t links = 0;
  for (size_t at = html.find("href=\"#"); at != std::string::npos; at = html.find("href=\"#", at + 1)) {
    const size_t begin = at + 7, end = html.find('"', begin);
    EXPECT_EQ(count(html, core::cat(" id=\"", html.substr(begin, end - begin), "\"")), 1u)
        << html.substr(begin, end - begin);
    ++links;
  }
  EXPECT_EQ(links, 1 + count(html, "<section id=") + count(html, "<details class=\"table\""))
      << "and one to skip to the findings";
  EXPECT_EQ(count(html, "<h1>"), 1u);
  EXPECT_EQ(count(html, "<h2 id="), count(html, "<section id="));
}

TEST(HtmlReport, TableOfNoKnownPlaceIsShownAllTheSame) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 1000);
  maker.kernel("gemm", 20, 500);
  maker.finish();
  const Store store = load({folder.path().string()}, {});
  static const Section kUnknown = {
      .name = "unknown", .needs = {}, .tables = {[](const Store&, const Results&, int64_t) {
                                        DataTable table("of_tomorrow", "Of tomorrow", {{"value"}});
                                        table.add({int64_t{123456}});
                                        return table;
                                      }}};
  Sections sections = sections::every();
  sections.push_back(&kUnknown);
  const std::string html = html_report(store, analyze(store, sections), {"t"});
  EXPECT_NE(html.find("Of tomorrow"), std::string::npos);
  EXPECT_NE(html.find("<td>123456</td>"), std::string::npos);
}

}  // namespace
}  // namespace ms::profile
