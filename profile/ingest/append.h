// Joins two files of one rank.
#pragma once

#include "profile/store.h"

namespace ms::profile {

// Appends all events and tables of `more` to `trace`, renumbers its names, lanes and table rows, and calls
// finish_trace.
void append_trace(RankTrace& trace, const RankTrace& more);

}  // namespace ms::profile
