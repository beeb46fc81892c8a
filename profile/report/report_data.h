// The data of the HTML report's scripts, as JSON. Times are whole nanoseconds, so that charts show the figures of the
// tables.
#pragma once

#include <string>
#include <vector>

#include "profile/analysis/results.h"
#include "profile/report/rank_choice.h"
#include "profile/report/timeline.h"
#include "profile/store.h"

namespace ms::profile {

// {"ranks": [{"rank", "why", "steps_in_trace",
//             "steps": [[step, host, span, computing, exposed communication, exposed memory, idle], ..],
//             "curves": [{"name", "unit": "bytes" | "launches", "t": [..], "v": [..]}]}],
//  "kernels": [{"name", "class": 0..2, "ranks", "spread": [min, p25, median, p75, max], "at": [ns of each shown
//  rank]}], "waits": {"most", "collectives", "rows": ["0390..", ..]}}
// Times of curves count from the rank's first event; each from the one before. A digit of `waits` is ninths of `most`,
// by shown rank and collective, rounded up. `at` is -1 for a rank that does not run the kernel.
std::string charts_json(const Store& store, const Results& results, const std::vector<ShownRank>& shown);

// {"span", "names": [[class, name, whole name?], ..],
//  "ranks": [{"rank", "events", "slices", "lanes": [{"name", "device", "depth", "t", "d", "n", "z", "share"?}],
//             "flows": [launch, device slice, ..]}]}
// Per lane: starts (each relative to the previous one), durations, names, depths ("z", omitted if all are 0), and the
// covered shares as digits if slices were dropped. Flows count the slices of the rank, lane by lane.
std::string timeline_json(const Timeline& timeline);

// timeline_json with as many slices as fit into max_bytes of a <script> (html_text.h).
std::string timeline_script(const std::vector<TimelineInput>& ranks, size_t max_bytes);

}  // namespace ms::profile
