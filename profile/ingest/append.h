// Joins two files of one rank.
#pragma once

#include "profile/store.h"

namespace ms::profile {

// Adds everything of `more` to `trace`, its names, lanes and rows renumbered, and calls finish_trace.
void append_trace(RankTrace& trace, const RankTrace& more);

}  // namespace ms::profile
