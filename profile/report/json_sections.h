// Sections of one rank as JSON. Each function writes its key and value into the open object.
#pragma once

#include "profile/analysis/results.h"
#include "profile/analysis/steps.h"
#include "profile/report/json_writer.h"
#include "profile/store.h"

namespace ms::profile {

// Functions for Section::write_rank. top: rows of long lists; 0: all.
void write_facts(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_breakdown(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_per_step(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_kernel_types(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_kernels(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
// With the tables of an Ascend profile, if the trace is one.
void write_steps(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_launch_stats(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_queue_length(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_idle(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_idle_causes(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_memory(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_operators(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);
void write_tensorboard_steps(JsonWriter& json, const RankTrace& trace, const RankResults& rank, int64_t top);

void write_step_times(JsonWriter& json, const StepTimes& times);

}  // namespace ms::profile
