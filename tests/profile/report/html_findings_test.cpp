// Headline figures and cards: each finding with its share, what to do and a command; the figures are those of analyze.
#include "profile/report/html_findings.h"

#include <gtest/gtest.h>

#include "profile/ingest/load.h"
#include "profile/report/text_report.h"
#include "profile/sections.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

class HtmlFindings : public testing::Test {
 protected:
  void read() {
    store_ = load({folder_.path().string()}, {});
    results_ = analyze(store_, sections::every());
  }
  static size_t count(const std::string& text, const std::string& what) {
    size_t n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  }
  test::TemporaryFolder folder_;
  Store store_;
  Results results_;
};

TEST_F(HtmlFindings, EachHasACardWithItsFigureRemedyAndCommand) {
  for (const int rank : {0, 1}) {
    test::TraceMaker maker(folder_.path(), rank, 2);
    maker.host("ProfilerStep#1", 0, 1'000'000);
    maker.kernel("gemm", 100'000, rank == 0 ? 300'000 : 500'000);
    maker.comm("allreduce", "dp", {0, 1}, rank == 0 ? 300'000 : 500'000, 600'000);
    maker.finish();
  }
  read();
  const std::string html = findings_html(results_, {"a folder"}), text = analyze_text(store_, results_, {"a folder"});
  const auto& findings = results_.at<Findings>();
  ASSERT_GE(findings.size(), 2u);
  EXPECT_EQ(count(html, "<li class=\"card\""), findings.size());
  EXPECT_EQ(count(html, "class=\"meter\""), findings.size());
  EXPECT_EQ(count(html, "What to do:"), findings.size());
  EXPECT_EQ(count(html, "<code>msprof "), findings.size());
  EXPECT_NE(html.find("&#39;a folder&#39;"), std::string::npos) << "quoted for a shell";
  // "0.60 ms  30.00 %": every figure of the cards stands in analyze.
  for (size_t at = html.find("class=\"figure\"><b>"); at != std::string::npos;
       at = html.find("class=\"figure\"><b>", at + 1)) {
    const size_t begin = at + 18, end = html.find(" %", begin), ms = html.find("</b> ", end) + 5;
    const std::string share = html.substr(begin, end - begin), lost = html.substr(ms, html.find(" ms", ms) - ms);
    EXPECT_NE(text.find(core::cat("  ", lost, " ms  ", share, " %  ")), std::string::npos) << lost << " " << share;
  }
}

TEST_F(HtmlFindings, HeadlineFiguresAreThoseOfAnalyze) {
  test::TraceMaker maker(folder_.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 1'000'000);
  maker.host("ProfilerStep#2", 1'000'000, 3'000'000);
  maker.kernel("gemm", 0, 750'000);
  maker.memory(10, 0x10, 2'500'000, 2'500'000);
  maker.finish();
  read();
  const std::string html = headline_html(store_, results_), text = analyze_text(store_, results_, {"t"});
  EXPECT_NE(text.find("2 steps, 1.50 ms each on average"), std::string::npos) << text;
  EXPECT_NE(html.find("<dt>Step</dt><dd>1.50 ms<small>average; 2 steps"), std::string::npos) << html;
  EXPECT_NE(text.find("computing 25.00 % of the time"), std::string::npos) << text;
  EXPECT_NE(html.find("<dt>Computing</dt><dd>25.00 %"), std::string::npos) << html;
  EXPECT_NE(html.find("<dt>Peak memory</dt><dd>2.50 MB"), std::string::npos) << html;
  EXPECT_EQ(html.find("Load balance"), std::string::npos) << "of several ranks only";
}

TEST_F(HtmlFindings, NothingLostAndNothingMeasuredAreSaid) {
  test::TraceMaker maker(folder_.path(), 0, 1);
  maker.kernel("gemm", 0, 500);
  maker.finish();
  read();
  EXPECT_EQ(findings_html(results_, {"t"}), "<p>No time is lost.</p>\n");
}

TEST(FindingTitle, NamesTheCauseOfIdleTime) {
  Finding finding;
  finding.cause = IdleCause::kHostWork;
  EXPECT_EQ(finding_title(finding), "Idle: host work");
  finding.kind = FindingKind::kSlowLink;
  EXPECT_EQ(finding_title(finding), "Slow link");
}

}  // namespace
}  // namespace ms::profile
