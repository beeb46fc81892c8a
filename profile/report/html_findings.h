// The top of the report: headline figures, and each finding as a card.
#pragma once

#include <string>
#include <vector>

#include "profile/analysis/results.h"
#include "profile/store.h"

namespace ms::profile {

std::string headline_html(const Store& store, const Results& results);
// A bar for the share of the time, what was found, what to do, and the command that shows more. inputs: as given.
std::string findings_html(const Results& results, const std::vector<std::string>& inputs);
// "Idle: host work": names a finding among others.
std::string finding_title(const Finding& finding);

}  // namespace ms::profile
