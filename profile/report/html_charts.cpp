#include "profile/report/html_charts.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "profile/analysis/breakdown.h"
#include "profile/report/html_text.h"
#include "profile/report/table.h"

namespace ms::profile {

using core::cat;

std::string breakdown_bars(const Results& results, const std::vector<ShownRank>& shown) {
  std::vector<ShownRank> sorted = shown;
  std::sort(sorted.begin(), sorted.end(), [](const ShownRank& a, const ShownRank& b) { return a.rank < b.rank; });
  std::string rows;
  for (const ShownRank& rank : sorted) {
    const auto* times = results.ranks[rank.index].get<Breakdown>();
    if (times == nullptr) continue;
    const Breakdown& b = *times;
    const std::pair<const char*, int64_t> parts[] = {{"computing", b.computing},
                                                     {"exposed communication", b.exposed_communication},
                                                     {"exposed memory", b.exposed_memory},
                                                     {"idle", b.idle}};
    std::string label = cat("rank ", rank.rank), spans;
    int klass = 0;
    for (const auto& [name, ns] : parts) {
      const std::string share = percent(ns, b.span);
      label += cat(", ", name, " ", share);
      const double width = b.span == 0 ? 0 : 100.0 * static_cast<double>(ns) / static_cast<double>(b.span);
      spans += cat("<span class=\"k", klass, "\" style=\"width:", fixed(width, 3), "%\" title=\"", name, " ", share,
                   "\">", width >= 12 ? share : std::string(), "</span>");
      ++klass;
    }
    rows += cat("<div class=\"row\" data-rank=\"", rank.rank, "\"><b>rank ", rank.rank,
                "</b><div class=\"bar\" role=\"img\" aria-label=\"", label, "\">", spans, "</div><i>",
                milliseconds(b.span), " ms</i></div>\n");
  }
  if (rows.empty()) return rows;
  return cat(
      "<p class=\"legend\"><span class=\"k0\"></span>computing <span class=\"k1\"></span>exposed communication "
      "<span class=\"k2\"></span>exposed memory <span class=\"k3\"></span>idle</p>\n<div class=\"bars\">\n",
      rows, "</div>\n");
}

std::string chart_place(std::string_view id, std::string_view title, std::string_view note) {
  return cat("<figure class=\"chart\" id=\"", id, "\" hidden><figcaption><b>", html_text(title), "</b> ",
             html_text(note), "</figcaption><div class=\"plot\"></div></figure>\n");
}

}  // namespace ms::profile
