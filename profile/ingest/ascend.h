// Reads an Ascend profile: a folder of torch_npu, MindSpore or msprof with its text files, or its database (traces.md
// 5).
#pragma once

#include <string>
#include <vector>

#include "profile/import_stats.h"
#include "profile/ingest/byte_stream.h"
#include "profile/store.h"

namespace ms::profile {

// The folder of results within a profile folder (ASCEND_PROFILER_OUTPUT, mindstudio_profiler_output); empty if it has
// none.
std::string ascend_output_folder(const std::string& folder);

// Reads what is there, in this order of trust: trace_view.json, the database, kernel_details.csv; and the tables beside
// them. finish_trace is called. Throws kCorruptData if a needed column is missing (it is named) or nothing can be read.
void read_ascend_folder(const std::string& folder, int threads, RankTrace& trace, FileInfo& file, ImportStats& stats);

// A kernel_details.csv without its folder: the kernels are the device events. finish_trace is called. Throws
// kCorruptData if a needed column is missing.
void read_ascend_kernels(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file,
                         ImportStats& stats);

// A database (ascend_pytorch_profiler*.db), given as its bytes.
void read_ascend_database(std::string bytes, const std::string& path, RankTrace& trace, FileInfo& file,
                          ImportStats& stats);

}  // namespace ms::profile
