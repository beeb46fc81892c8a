// The report as text: self-contained, harmless whatever things are called, small whatever the trace. What a browser
// makes of it: report_test.py.
#include "profile/report/html_report.h"

#include <gtest/gtest.h>

#include "profile/ingest/load.h"
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

TEST(HtmlReport, IsSmallWhateverTheTrace) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 100'000'000);
  for (int i = 0; i < 60'000; ++i) {
    maker.kernel(core::cat("kernel_with_a_name_of_its_own_", i, std::string(200, 'x')), 1000 * i, 1000 * i + 500);
    if (i % 10'000 == 0) maker.flush();
  }
  maker.finish();
  EXPECT_LT(report_of(folder.path().string(), "t").size(), size_t{5} << 20);
}

}  // namespace
}  // namespace ms::profile
