// Attributes lost time to the ranks that caused it.
//
// Exposed communication is followed to its cause: while a rank waits for another to start its part of an operation, the
// cause is what that rank does in the meantime, and if it waits too, what the rank does that it waits for. This finds a
// loader that starves one rank although all others appear to wait in a collective, and a slow link although the stages
// after it wait for a late sender. Only the rest is the cost of communication itself.
#pragma once

#include <vector>

#include "profile/analysis/activity.h"
#include "profile/analysis/findings.h"
#include "profile/analysis/pipeline.h"

namespace ms::profile {

// Splits the exposed communication among `findings` and sorts them again by lost time. The parts never exceed it: time
// hidden by computing is not lost. A slow link is charged with what exceeds the median link. Imbalance is then removed,
// because it would count the same time again. pipeline: null if there is none. Changes nothing if the matching of the
// ranks is not reliable.
void blame_waiting(const std::vector<RankDevices>& ranks, const MatchedComms& comms, const CrossRank& cross,
                   const Pipeline* pipeline, Findings& findings);

}  // namespace ms::profile
