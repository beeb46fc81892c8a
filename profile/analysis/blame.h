// Findings told by who caused them: of exposed communication, what is waiting for a late rank, for another pipeline
// stage, or for a slow link, and only the rest is what communication itself costs.
#pragma once

#include <optional>
#include <vector>

#include "profile/analysis/cross_rank.h"
#include "profile/analysis/findings.h"
#include "profile/analysis/pipeline.h"

namespace ms::profile {

// Splits the exposed communication among `findings` and sorts them by lost time again. The parts never exceed it: what
// computing hides is not lost. Imbalance is left out then: it says the same. Nothing changes where the matching of the
// ranks is not reliable.
void blame_waiting(const CrossRank& cross, const std::optional<Pipeline>& pipeline, std::vector<Finding>& findings);

}  // namespace ms::profile
