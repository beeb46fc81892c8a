// Charts of the HTML report: bars that need no script, and empty figures for those that scripts draw.
#pragma once

#include <string>
#include <vector>

#include "profile/analysis/results.h"
#include "profile/report/rank_choice.h"

namespace ms::profile {

// A stacked bar for each shown rank, by rank: computing, exposed communication, exposed memory, idle. Empty without
// device events.
std::string breakdown_bars(const Results& results, const std::vector<ShownRank>& shown);
// A hidden figure; charts.js draws into it and shows it if there is data. title, note: plain text.
std::string chart_place(std::string_view id, std::string_view title, std::string_view note);

}  // namespace ms::profile
