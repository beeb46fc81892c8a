// Findings as text: what was lost and why, what to do, and the verb that shows more.
#pragma once

#include <string>
#include <string_view>

#include "profile/analysis/results.h"

namespace ms::profile {

// One sentence; its numbers are those of the tables of verb_of. results: of sections::every().
std::string sentence(const Finding& finding, const Results& results);
// What to do, and the condition under which it helps.
std::string_view remedy(const Finding& finding, const Results& results);
// The verb that shows more.
std::string_view verb_of(FindingKind kind);

}  // namespace ms::profile
