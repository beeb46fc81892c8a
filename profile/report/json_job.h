// Job sections as JSON: cross_rank, pop, pipeline, findings, and the results of diff and critical-path.
#pragma once

#include "profile/analysis/critical_path.h"
#include "profile/analysis/diff.h"
#include "profile/analysis/results.h"
#include "profile/report/json_writer.h"

namespace ms::profile {

// Functions for Section::write_job.
void write_cluster(JsonWriter& json, const Results& results);
void write_kernel_spread(JsonWriter& json, const Results& results);  // nothing for one rank
void write_cross_rank(JsonWriter& json, const Results& results);     // nothing of one rank
void write_pop(JsonWriter& json, const Results& results);
void write_pipeline(JsonWriter& json, const Results& results);
void write_findings(JsonWriter& json, const Results& results);  // with the imbalance

void write_diff(JsonWriter& json, const Diff& diff, int64_t top);
void write_critical_path(JsonWriter& json, const RankTrace& trace, const CriticalPath& path);

}  // namespace ms::profile
