#include "profile/report/html_findings.h"

#include <algorithm>

#include "core/error.h"
#include "profile/analysis/memory.h"
#include "profile/analysis/pop.h"
#include "profile/report/command_text.h"
#include "profile/report/finding_text.h"
#include "profile/report/headline.h"
#include "profile/report/html_text.h"
#include "profile/report/table.h"

namespace ms::profile {
namespace {

using core::cat;

constexpr double kSmall = 0.005;  // of the time; smaller findings are folded away

std::string tile(std::string_view label, std::string_view figure, std::string_view note) {
  return cat("<div class=\"tile\"><dt>", html_text(label), "</dt><dd>", html_text(figure),
             note.empty() ? "" : cat("<small>", html_text(note), "</small>"), "</dd></div>\n");
}

int64_t peak_bytes(const Results& results) {
  int64_t peak = 0;
  for (const RankResults& rank : results.ranks) {
    for (const auto& [device, timeline] : rank.at<MemoryUse>().timelines) {
      peak = std::max(peak, timeline.peak_allocated);
    }
  }
  return peak;
}

// text with a capital first letter.
std::string capital(std::string_view text) {
  std::string out(text);
  if (!out.empty() && out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 'a' + 'A');
  return out;
}

std::string card(const Finding& finding, size_t number, const Results& results,
                 const std::vector<std::string>& inputs) {
  const std::string share = fixed(100 * finding.share, 2);
  return cat("<li class=\"card\" id=\"finding-", number, "\">\n<h3>", html_text(finding_title(finding)),
             "</h3>\n<p class=\"figure\"><b>", share, " %</b> ", milliseconds(finding.lost_ns),
             " ms</p>\n<div class=\"meter\" role=\"img\" aria-label=\"", share,
             " percent of the time\"><span style=\"width:", fixed(std::min(100.0, 100 * finding.share), 3),
             "%\"></span></div>\n<p>", html_text(capital(sentence(finding, results))), ".</p>\n<p><b>What to do:</b> ",
             html_text(capital(remedy(finding, results))), ".</p>\n<p class=\"command\"><code>",
             html_text(command_text(verb_of(finding.kind), inputs)), "</code></p>\n</li>\n");
}

}  // namespace

std::string finding_title(const Finding& finding) {
  switch (finding.kind) {
    case FindingKind::kExposedCommunication:
      return "Exposed communication";
    case FindingKind::kImbalance:
      return "Uneven work";
    case FindingKind::kDataLoading:
      return "Data loading";
    case FindingKind::kCheckpoint:
      return "Checkpoints";
    case FindingKind::kExposedMemory:
      return "Exposed copies";
    case FindingKind::kIdle: {
      std::string cause(idle_cause_name(finding.cause));
      std::replace(cause.begin(), cause.end(), '_', ' ');
      return cat("Idle: ", cause);
    }
    case FindingKind::kWaiting:
      return "Waiting for late ranks";
    case FindingKind::kPipelineBubble:
      return "Pipeline bubble";
    case FindingKind::kSlowLink:
      return "Slow link";
  }
  MS_CHECK(false, "finding ", static_cast<int>(finding.kind));
}

std::string headline_html(const Store& store, const Results& results) {
  const Headline head = headline(store, results);
  std::string out = "<dl class=\"tiles\">\n";
  out += tile(head.ranks == 1 ? "Rank" : "Ranks", std::to_string(head.ranks),
              cat(head.files, head.files == 1 ? " file" : " files"));
  if (head.mean_step_ns) {
    out += tile("Step", cat(milliseconds(*head.mean_step_ns), " ms"),
                cat("average; ", head.steps_of_first_rank, head.steps_of_first_rank == 1 ? " step" : " steps"));
  }
  if (head.time.wall_ns > 0) {
    out += tile("Computing", percent(head.time.computing_ns, head.time.wall_ns), "of the time of all ranks");
  }
  const auto& findings = results.at<Findings>();
  if (!findings.empty()) {
    out += tile("Largest loss", cat(fixed(100 * findings[0].share, 2), " %"), finding_title(findings[0]));
  }
  if (head.ranks > 1) out += tile("Load balance", fixed(head.load_balance, 3), "average / largest computing");
  if (const Pop* pop = results.get<Pop>()) {
    out += tile("Parallel efficiency", fixed(pop->parallel_efficiency, 4), "POP; below 0.8 deserves attention");
  }
  if (const auto peak = static_cast<double>(peak_bytes(results)); peak > 0) {
    const std::string figure = peak >= 1e9 ? cat(fixed(peak * 1e-9, 2), " GB") : cat(fixed(peak * 1e-6, 2), " MB");
    out += tile("Peak memory", figure, "allocated, of one device");
  }
  out += "</dl>\n";
  if (head.on_cpu) {
    out +=
        "<p class=\"note\">No device events: operators of the host count as computing, gloo and MPI calls as "
        "communication.</p>\n";
  }
  return out;
}

std::string findings_html(const Results& results, const std::vector<std::string>& inputs) {
  if (results.at<JobTime>().wall_ns == 0) {
    return cat("<p>No device events: nothing to analyse. <code>", html_text(command_text("info", inputs)),
               "</code> shows what is there.</p>\n");
  }
  const auto& findings = results.at<Findings>();
  if (findings.empty()) return "<p>No time is lost.</p>\n";
  std::string out = cat("<p class=\"note\">Lost time, largest first, summed over ",
                        results.ranks.size() == 1 ? "the rank" : "all ranks", ".</p>\n<ol class=\"cards\">\n");
  size_t i = 0;
  for (; i < findings.size() && (i == 0 || findings[i].share >= kSmall); ++i) {
    out += card(findings[i], i + 1, results, inputs);
  }
  out += "</ol>\n";
  if (i == findings.size()) return out;
  out += cat("<details class=\"smaller\"><summary>", findings.size() - i, " smaller, below ", fixed(100 * kSmall, 1),
             " % each</summary>\n<ol class=\"cards\" start=\"", i + 1, "\">\n");
  for (; i < findings.size(); ++i) out += card(findings[i], i + 1, results, inputs);
  return out + "</ol>\n</details>\n";
}

}  // namespace ms::profile
