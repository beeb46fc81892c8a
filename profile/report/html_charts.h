// Charts of the report that need no script, and the places where scripts draw the others.
#pragma once

#include <string>
#include <vector>

#include "profile/analysis/results.h"
#include "profile/report/rank_choice.h"

namespace ms::profile {

// A bar for each shown rank: computing, exposed communication, exposed memory, idle. Empty without device events.
std::string breakdown_bars(const Results& results, const std::vector<ShownRank>& shown);
// A figure that charts.js fills, and hides if there is nothing to draw.
std::string chart_place(std::string_view id, std::string_view title, std::string_view note);

}  // namespace ms::profile
