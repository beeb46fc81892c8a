// The sections of one rank as JSON (traces.md 9 and 13.2). Each writes its key and value into the open object.
#pragma once

#include "profile/analysis/results.h"
#include "profile/report/json_writer.h"
#include "profile/store.h"

namespace ms::profile {

// The sections that results hold, of one rank. top: rows of long lists; 0: all.
void write_rank_sections(JsonWriter& json, const RankTrace& trace, const Results& results, const RankResults& rank,
                         int64_t top);
void write_step_times(JsonWriter& json, const StepTimes& times);

}  // namespace ms::profile
