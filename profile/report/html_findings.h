// The top of the HTML report: headline figures and the findings as cards.
#pragma once

#include <string>
#include <vector>

#include "profile/analysis/results.h"
#include "profile/store.h"

namespace ms::profile {

std::string headline_html(const Store& store, const Results& results);
// A card per finding: its share of the time as a bar, the sentence, the remedy, and the command that shows more.
// Findings below 0.5 % are folded away. inputs: the arguments of the tool, repeated in the commands.
std::string findings_html(const Results& results, const std::vector<std::string>& inputs);
// "Idle: host work": names a finding among others.
std::string finding_title(const Finding& finding);

}  // namespace ms::profile
