// Reads records of what the routers of a model with experts have chosen, one JSON object a line:
//
//   {"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": 3, "rank": 0, "num_tokens": 128, "topk": 2,
//    "top_indices": [[12, 45], ...]}                Megatron's --moe-routing-trace-path, of one rank
//                                                   (megatron/core/transformer/moe/router_trace.py)
//   {"iteration": 7, ..., "experts": [{"layer": 3, "tokens": [5, 0], ...}], ...}
//                                                   mstrain's --metrics-path, of all ranks; its first iteration is 1,
//                                                   step 0 of traces, and "mtp": 0 beside a layer means that it is
//                                                   layer 0 of that module of multi-token prediction; "ranks" beside
//                                                   "tokens": the expert-parallel rank of each expert, as they move
//
// They become counters (core/trace/expert_names.h). These records have no times: step N is an annotation "iteration N"
// from N ms to N + 1 ms, and its samples lie at its start. Micro-batches of a step are added up. Lines of metrics
// without experts, and further keys, are ignored.
#pragma once

#include <string>
#include <string_view>

#include "profile/import_stats.h"
#include "profile/ingest/byte_stream.h"
#include "profile/store.h"

namespace ms::profile {

// Whether a file that begins like this has such records.
bool is_router_trace(std::string_view first);

// Reads the whole stream into `trace`, which must be empty, and calls finish_trace. Lines that contradict the format
// are skipped and counted in stats; memory is proportional to the counts, plus the longest line. Returns false for
// metrics without experts. Throws kCorruptData if no line is a record. path appears in messages.
bool read_router_trace(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file,
                       ImportStats& stats);

}  // namespace ms::profile
