// Findings in words: what was lost and why, what to do about it, and which verb shows more.
#pragma once

#include <string>
#include <string_view>

#include "profile/analysis/results.h"

namespace ms::profile {

// One sentence; its numbers are those of the tables of verb_of. results: of sections::every().
std::string sentence(const Finding& finding, const Results& results);
// What to do, and when it helps.
std::string_view remedy(const Finding& finding, const Results& results);
// The verb that shows more, with its flags.
std::string_view verb_of(FindingKind kind);

}  // namespace ms::profile
