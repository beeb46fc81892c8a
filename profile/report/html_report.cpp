#include "profile/report/html_report.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "core/error.h"
#include "profile/analysis/cross_rank.h"
#include "profile/report/command_text.h"
#include "profile/report/csv_report.h"
#include "profile/report/html_charts.h"
#include "profile/report/html_findings.h"
#include "profile/report/html_tables.h"
#include "profile/report/html_text.h"
#include "profile/report/page/page_files.h"
#include "profile/report/rank_choice.h"
#include "profile/report/report_data.h"

namespace ms::profile {
namespace {

using core::cat;

// Even if every part has its largest size, the page stays below kMaxBytes: the timeline gets what the others leave.
constexpr size_t kMaxBytes = 4'900'000, kMaxTimelineBytes = 3'000'000;
constexpr size_t kTableBytes = 1'200'000, kMaxTableBytes = 250'000, kMaxImportBytes = 60'000;
constexpr size_t kMaxRanks = 64;
constexpr size_t kRowsOfRanks = 1500, kMinRows = 20, kMaxRows = 60;  // per rank, in long lists

enum class Part : uint8_t { kTime, kKernels, kIdle, kMemory, kAcross, kExperts, kInput };

// The section of each table, and the verb that prints it.
struct TablePlace {
  std::string_view table;
  Part part;
  std::string_view verb;
};
constexpr TablePlace kPlaces[] = {
    {"breakdown", Part::kTime, "breakdown"},
    {"per_step", Part::kTime, "breakdown --per-step"},
    {"kernel_types", Part::kTime, "overlap"},
    {"step_trace_time", Part::kTime, "steps"},
    {"kernel_spread", Part::kKernels, "kernels"},
    {"kernels", Part::kKernels, "kernels"},
    {"operators", Part::kKernels, "ops"},
    {"launch", Part::kIdle, "launch"},
    {"queue", Part::kIdle, "queue"},
    {"idle", Part::kIdle, "idle"},
    {"idle_causes", Part::kIdle, "idle"},
    {"memory_operations", Part::kMemory, "memory"},
    {"memory_timeline", Part::kMemory, "memory"},
    {"memory_at_peak", Part::kMemory, "memory"},
    {"ranks", Part::kAcross, "ranks"},
    {"slow_ranks", Part::kAcross, "ranks"},
    {"waits", Part::kAcross, "ranks"},
    {"links", Part::kAcross, "links"},
    {"collective_rates", Part::kAcross, "links"},
    {"pipeline", Part::kAcross, "pipeline"},
    {"stage_waits", Part::kAcross, "pipeline"},
    {"stage_actions", Part::kAcross, "pipeline"},
    {"action_times", Part::kAcross, "pipeline"},
    {"pop", Part::kAcross, "pop"},
    {"useful", Part::kAcross, "pop"},
    {"experts", Part::kExperts, "experts"},
    {"expert_ranks", Part::kExperts, "experts"},
    {"expert_waits", Part::kExperts, "experts"},
    {"expert_steps", Part::kExperts, "experts"},
    {"hot_experts", Part::kExperts, "experts"},
    {"facts", Part::kInput, "info"},
};
// Tables that are not listed go to the end.
constexpr TablePlace kElsewhere = {"", Part::kInput, "analyze"};

const TablePlace& place_of(const std::string& table) {
  const auto* found = std::find_if(std::begin(kPlaces), std::end(kPlaces),
                                   [&](const TablePlace& place) { return place.table == table; });
  return found == std::end(kPlaces) ? kElsewhere : *found;
}

class Page {
 public:
  Page(const Store& store, const Results& results, const std::vector<std::string>& inputs)
      : store_(store), results_(results), inputs_(inputs), shown_(choose_ranks(results, kMaxRanks)) {
    for (const ShownRank& rank : shown_) shown_numbers_.insert(rank.rank);
    const size_t rows = std::clamp(kRowsOfRanks / std::max<size_t>(1, shown_.size()), kMinRows, kMaxRows);
    tables_ = tables_of(store, results, static_cast<int64_t>(rows));
  }

  std::string html() {
    add_section("findings", "Findings", headline_html(store_, results_) + findings_html(results_, inputs_));
    add_section("time", "Where the time goes",
                breakdown_bars(results_, shown_) +
                    chart_place("steps-chart", "Time of each step by cause.",
                                "Height: the step on the host, or the span of its device events if that is longer.") +
                    tables(Part::kTime));
    add_section("timeline", "Timeline", timeline_place());
    add_section("kernels", "Kernels and operators",
                chart_place("spread-chart", "Kernels across ranks.",
                            "Line: smallest to largest rank; box: middle half; bar: median; dots: ranks.") +
                    tables(Part::kKernels));
    add_section("launches", "Launches and idle time",
                chart_place("queue-chart", "Launches that have not begun yet.", "") + tables(Part::kIdle));
    add_section("memory", "Memory", chart_place("memory-chart", "Memory in use.", "") + tables(Part::kMemory));
    add_section("across", "Across ranks",
                chart_place("waits-chart", "Waiting at collectives.",
                            "A row is a rank, a column a collective in time order; darker: a longer wait.") +
                    tables(Part::kAcross));
    add_section("experts", "Experts",
                chart_place("experts-chart", "Load of experts.",
                            "A row is a layer, a column an expert; stronger: more tokens; a cross: none.") +
                    tables(Part::kExperts));
    add_section("input", "Input", tables(Part::kInput) + import_messages());

    const std::string charts = script_json(charts_json(store_, results_, shown_));
    const std::string head = this->head(), rest = scripts();
    size_t used = head.size() + charts.size() + rest.size();
    for (const Section& section : sections_) used += section.html.size() + 200;
    const std::string slices =
        timeline_script(timeline_inputs(), used >= kMaxBytes ? 0 : std::min(kMaxTimelineBytes, kMaxBytes - used));
    if (slices.find("\"lanes\":[{") == std::string::npos) {
      std::erase_if(sections_, [](const Section& section) { return section.id == "timeline"; });
    }

    std::string out = cat(head, contents(), "<main>\n");
    for (const Section& section : sections_) {
      out += cat("<section id=\"", section.id, "\" aria-labelledby=\"h-", section.id, "\">\n<h2 id=\"h-", section.id,
                 "\">", html_text(section.title), "</h2>\n", section.html, "</section>\n");
    }
    return cat(out, "</main>\n</div>\n<script type=\"application/json\" id=\"data-charts\">", charts,
               "</script>\n<script type=\"application/json\" id=\"data-timeline\">", slices, "</script>\n", rest,
               "</body>\n</html>\n");
  }

 private:
  struct Section {
    std::string id, title, html;
  };

  void add_section(std::string id, std::string title, std::string html) {
    // Without a table there is no data for the charts either.
    if (html.find("<table") == std::string::npos && id != "findings" && id != "timeline" && id != "input") {
      return;
    }
    sections_.push_back({std::move(id), std::move(title), std::move(html)});
  }

  std::string title() const {
    return inputs_.empty() ? "traces"
                           : cat(inputs_[0], inputs_.size() > 1 ? cat(" and ", inputs_.size() - 1, " more") : "");
  }

  std::string head() const {
    const std::string name = html_text(title());
    std::string out =
        cat("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
            "content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<meta "
            "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
            "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n<title>",
            name, "</title>\n<style>\n", page::kReportCss,
            "</style>\n</head>\n<body>\n<a class=\"skip\" "
            "href=\"#findings\">Skip to findings</a>\n<header>\n<h1>",
            name, "</h1>\n<p class=\"sub\">msprof report: ", store_.ranks.size(),
            store_.ranks.size() == 1 ? " rank, " : " ranks, ", store_.files.size(),
            store_.files.size() == 1 ? " file" : " files", "</p>\n");
    return out + rank_picker() + "</header>\n";
  }

  // Hidden without scripts: tables then show all chosen ranks.
  std::string rank_picker() const {
    if (shown_.empty()) return {};
    std::vector<ShownRank> sorted = shown_;
    std::sort(sorted.begin(), sorted.end(), [](const ShownRank& a, const ShownRank& b) { return a.rank < b.rank; });
    std::string out = "<div class=\"picker\"><label for=\"rank\">Rank</label> <select id=\"rank\">";
    if (shown_.size() > 1) out += "<option value=\"all\">all shown ranks</option>";
    for (const ShownRank& rank : sorted) {
      out += cat("<option value=\"", rank.rank, "\"", rank.rank == shown_[0].rank ? " selected>" : ">", rank.rank,
                 rank.reason.empty() ? "" : cat(": ", html_text(rank.reason)), "</option>");
    }
    out += "</select>";
    if (shown_.size() < store_.ranks.size()) {
      out +=
          cat(" <span>", shown_.size(), " of ", store_.ranks.size(),
              " ranks are shown: those that findings name, the slowest, fastest and median, and those that others "
              "waited for. Findings and headline figures are of all ranks; <code>--rank</code> chooses others.</span>");
    }
    return out + "</div>\n";
  }

  std::string contents() const {
    std::string out = "<div class=\"page\">\n<nav aria-label=\"Contents\">\n<h2>Contents</h2>\n<ol>\n";
    for (const Section& section : sections_) {
      out += cat("<li><a href=\"#", section.id, "\">", html_text(section.title), "</a>");
      std::string inner;
      for (const auto& [id, table, of] : table_links_) {
        if (of == section.id) inner += cat("<li><a href=\"#", id, "\">", html_text(table), "</a></li>");
      }
      out += cat(inner.empty() ? "" : cat("<ol>", inner, "</ol>"), "</li>\n");
    }
    return out + "</ol>\n</nav>\n";
  }

  std::string tables(Part part) {
    static constexpr std::string_view kSections[] = {"time",   "kernels", "launches", "memory",
                                                     "across", "experts", "input"};
    std::string out;
    const auto add = [&](const TablePlace& place) {
      for (const DataTable& table : tables_) {
        if (&place_of(table.name()) == &place) out += one_table(table, kSections[static_cast<size_t>(part)]);
      }
    };
    for (const TablePlace& place : kPlaces) {
      if (place.part == part) add(place);
    }
    if (part == kElsewhere.part) add(kElsewhere);
    return out;
  }

  std::string one_table(const DataTable& table, std::string_view section) {
    const HtmlTable part = html_table(table, shown_numbers_, std::min(kMaxTableBytes, table_bytes_));
    table_bytes_ -= std::min(table_bytes_, part.html.size());
    const std::string id = cat("table-", table.name()), title = html_text(table.title());
    table_links_.push_back({id, table.title(), std::string(section)});
    return cat("<details class=\"table\" id=\"", id, "\" open><summary><h3>", title,
               "</h3></summary>\n<p class=\"command\">",
               part.shown < part.rows ? cat("The first ", part.shown, " of ", part.rows, " rows. ") : "", "<code>",
               html_text(command_text(place_of(table.name()).verb, inputs_)),
               "</code></p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", title, "\">",
               part.html, "</div></details>\n");
  }

  static std::string timeline_place() {
    return "<div class=\"tools\" role=\"search\"><label for=\"find\">Search</label> <input id=\"find\" type=\"search\" "
           "placeholder=\"part of a name\" autocomplete=\"off\"><button type=\"button\" id=\"find-previous\" "
           "aria-label=\"previous match\">&#9650;</button><button type=\"button\" id=\"find-next\" aria-label=\"next "
           "match\">&#9660;</button><output id=\"found\" for=\"find\"></output><span class=\"gap\"></span><button "
           "type=\"button\" id=\"zoom-in\" aria-label=\"zoom in\">+</button><button type=\"button\" id=\"zoom-out\" "
           "aria-label=\"zoom out\">&minus;</button><button type=\"button\" id=\"zoom-all\">whole</button></div>\n<p "
           "class=\"legend\"><span class=\"k0\"></span>computing <span class=\"k1\"></span>communication <span "
           "class=\"k2\"></span>memory <span class=\"kh\"></span>host</p>\n<canvas id=\"view\" tabindex=\"0\" "
           "role=\"application\" aria-label=\"Timeline\" aria-describedby=\"keys\"></canvas>\n<p id=\"slice\" "
           "aria-live=\"polite\"></p>\n<p class=\"note\" id=\"cover\"></p>\n<p class=\"note\" id=\"keys\">Keys: "
           "<kbd>W</kbd> <kbd>+</kbd> and <kbd>S</kbd> <kbd>-</kbd> zoom, <kbd>A</kbd> <kbd>D</kbd> <kbd>&larr;</kbd> "
           "<kbd>&rarr;</kbd> pan, <kbd>&uarr;</kbd> <kbd>&darr;</kbd> scroll, <kbd>F</kbd> zooms to the selected "
           "slice, <kbd>0</kbd> shows everything, <kbd>/</kbd> searches, <kbd>N</kbd> next match. Mouse: Ctrl and "
           "wheel zoom, drag pans, click selects and shows the arrow from launch to kernel.</p>\n<noscript><p>The "
           "timeline needs JavaScript; tables and bars do not.</p></noscript>\n";
  }

  std::string import_messages() const {
    std::string out;
    const auto add = [&](const std::string& line) {
      if (out.size() < kMaxImportBytes) out += cat("<li>", html_text(line.substr(0, 2000)), "</li>\n");
    };
    for (const std::string& line : store_.stats.lines()) add(line);
    for (const std::string& line : results_.warnings) add(line);
    return out.empty() ? "<p>Nothing was lost on import.</p>\n" : cat("<ul class=\"import\">\n", out, "</ul>\n");
  }

  std::vector<TimelineInput> timeline_inputs() const {
    const auto& clocks = results_.at<CrossRank>().clocks.ranks;
    std::vector<TimelineInput> out;
    for (const ShownRank& rank : shown_) {
      out.push_back({store_.ranks[rank.index].get(), &results_.views[rank.index],
                     rank.index < clocks.size() ? clocks[rank.index] : RankClock{}});
    }
    return out;
  }

  static std::string scripts() {
    return cat("<script>(function () {\n'use strict';\n", page::kCommonJs, page::kTablesJs, page::kChartsJs,
               page::kViewJs, page::kTimelineJs, page::kSearchJs, "})();</script>\n");
  }

  const Store& store_;
  const Results& results_;
  const std::vector<std::string>& inputs_;
  std::vector<ShownRank> shown_;
  std::set<int64_t> shown_numbers_;
  std::vector<DataTable> tables_;
  std::vector<Section> sections_;
  struct TableLink {
    std::string id, title, section;
  };
  std::vector<TableLink> table_links_;
  size_t table_bytes_ = kTableBytes;
};

}  // namespace

std::string html_report(const Store& store, const Results& results, const std::vector<std::string>& inputs) {
  return Page(store, results, inputs).html();
}

}  // namespace ms::profile
