// Attributes lost time to the ranks that caused it.
//
// Exposed communication is followed to its cause. While a rank waits for a late one, the cause is what the late rank
// does meanwhile; if the late rank waits too, the search continues at the rank that it waits for. This finds a data
// loader that starves one rank although all others appear to wait in a collective, and a slow link although the stages
// after it wait for a late sender. Only the rest is the cost of communication itself.
#pragma once

#include <vector>

#include "profile/analysis/activity.h"
#include "profile/analysis/findings.h"
#include "profile/analysis/pipeline.h"

namespace ms::profile {

// Replaces the exposed communication in `findings` by its causes, and sorts by lost time again. The causes together
// never exceed it, because time that computing hides is not lost. A slow link is charged with the time above that of
// the median link. The finding about imbalance is removed: it would count the same time again. pipeline: null if there
// is none. Changes nothing if the ranks' operations or clocks cannot be matched reliably.
void blame_waiting(const std::vector<RankDevices>& ranks, const MatchedComms& comms, const CrossRank& cross,
                   const Pipeline* pipeline, Findings& findings);

}  // namespace ms::profile
