// The report: one HTML file that needs no network and no server (traces.md 13.3). Tables and bars work without
// JavaScript; with it tables sort and the timeline zooms, pans and searches. Below 5 MB whatever the traces.
#pragma once

#include <string>

#include "profile/analysis/results.h"
#include "profile/store.h"

namespace ms::profile {

// inputs: as given, for the title and the commands. results: of sections::every().
std::string html_report(const Store& store, const Results& results, const std::vector<std::string>& inputs);

}  // namespace ms::profile
