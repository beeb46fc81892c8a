// Findings told by who caused them.
//
// Exposed communication is followed to its causes: while a rank waits for another to begin its part of an operation,
// what that one does in the meantime is the reason, and if it waits itself, what the rank does that it waits for. So a
// loader that starves one rank is found though all others are seen to wait in a collective, and a slow link though the
// stages behind it wait for a sender that is late. Only what remains is what communication itself costs.
#pragma once

#include <vector>

#include "profile/analysis/activity.h"
#include "profile/analysis/findings.h"
#include "profile/analysis/pipeline.h"

namespace ms::profile {

// Splits the exposed communication among `findings` and sorts them by lost time again. The parts never exceed it: what
// computing hides is not lost. Of a slow link, what exceeds the median link is charged. Imbalance is left out then: it
// says the same. pipeline: null without one. Nothing changes where the matching of the ranks is not reliable.
void blame_waiting(const std::vector<RankDevices>& ranks, const MatchedComms& comms, const CrossRank& cross,
                   const Pipeline* pipeline, Findings& findings);

}  // namespace ms::profile
