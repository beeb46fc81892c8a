// What Holistic Trace Analysis makes of a trace before it analyses it, for --compat hta (traces.md 14).
#pragma once

#include "profile/store.h"

namespace ms::profile {

// Starts up and ends down to whole microseconds, if the trace has any time that is none: then every duration is the
// difference of the two, and may vanish. Our own traces as the JSON that HTA reads has them: times count from the first
// and have decimals, so they are always rounded.
void round_as_hta(RankTrace& trace);

}  // namespace ms::profile
