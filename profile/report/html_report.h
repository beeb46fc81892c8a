// The HTML report: one file that loads nothing from a network or server, smaller than 5 MB for any trace. Tables and
// bars work without JavaScript; with it tables sort, charts are drawn, and the timeline zooms, pans and searches.
#pragma once

#include <string>

#include "profile/analysis/results.h"
#include "profile/store.h"

namespace ms::profile {

// inputs: the arguments of the tool, for the title and the commands. results: of sections::every().
std::string html_report(const Store& store, const Results& results, const std::vector<std::string>& inputs);

}  // namespace ms::profile
