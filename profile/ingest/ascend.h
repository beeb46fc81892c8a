// Reads an Ascend profile into a RankTrace: a folder written by torch_npu, MindSpore or msprof, with its text files or
// its database.
#pragma once

#include <string>
#include <vector>

#include "profile/import_stats.h"
#include "profile/ingest/byte_stream.h"
#include "profile/store.h"

namespace ms::profile {

// The folder of results within a profile folder (ASCEND_PROFILER_OUTPUT, mindstudio_profiler_output); empty if there is
// none.
std::string ascend_output_folder(const std::string& folder);

// Reads events from the first of these that exists: trace_view.json, the database, kernel_details.csv; then the tables
// in the same folder. Calls finish_trace. Throws kCorruptData if a required column is missing (the text names it) or
// nothing can be read.
void read_ascend_folder(const std::string& folder, int threads, RankTrace& trace, FileInfo& file, ImportStats& stats);

// Reads a kernel_details.csv outside its folder: its kernels become the device events. Calls finish_trace. Throws
// kCorruptData if a required column is missing.
void read_ascend_kernels(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file,
                         ImportStats& stats);

// Reads a database (ascend_pytorch_profiler*.db) from its bytes.
void read_ascend_database(std::string bytes, const std::string& path, RankTrace& trace, FileInfo& file,
                          ImportStats& stats);

}  // namespace ms::profile
