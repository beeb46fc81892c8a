// Rounds a trace as Holistic Trace Analysis does before its analyses, for --compat hta.
#pragma once

#include "profile/store.h"

namespace ms::profile {

// If any time is not a whole microsecond, rounds all starts up and all ends down; each duration becomes the difference
// and may be 0. Native traces are rounded as in the JSON that HTA reads: their times count from the first and have
// decimals, so they are always rounded.
void round_as_hta(RankTrace& trace);

}  // namespace ms::profile
