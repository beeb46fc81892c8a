// Traces into other formats, as files: what `msprof convert` and mstrain's --profile-format do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

enum class ExportFormat { kJson, kJsonGz, kJsonZst, kPerfetto, kPerfettoGz, kPerfettoZst, kNative };

// "json", "json.gz", "json.zst", "perfetto-trace" (.gz, .zst), "mstrace"; throws kInvalidArgument otherwise.
ExportFormat parse_export_format(std::string_view name);
// By the end of a path: these behind a dot, and .pftrace for .perfetto-trace; throws kInvalidArgument otherwise.
ExportFormat export_format_of_path(const std::string& path);
std::string_view export_format_name(ExportFormat format);

// Reads the trace of one rank and writes it in another format. What import met goes to `stats` if given.
// Throws kNotFound, kCorruptData, kIo; on failure out_path is as before.
void convert_file(const std::string& trace_path, const std::string& out_path, ExportFormat format,
                  ImportStats* stats = nullptr);

// Writes all ranks of a store into one file on one clock, process id = rank. JSON of a store that was loaded with
// keep_file_order holds all arguments of other programs' JSON, and so with convert_ranks. Throws kInvalidArgument for
// several ranks and the native format, of which a file is of one rank.
void convert_merged(const Store& store, const std::string& out_path, ExportFormat format);
// Writes a rank as Chrome JSON in which a critical path is marked: critical as write_chrome_trace has it. Throws
// kInvalidArgument for other formats.
void convert_with_path(const RankTrace& trace, std::span<const uint32_t> critical, const std::string& out_path,
                       ExportFormat format);
// Writes one file a rank, rank_%05d.<format>, into a folder (made if missing), and returns the paths.
std::vector<std::string> convert_ranks(const Store& store, const std::string& folder, ExportFormat format);

}  // namespace ms::profile
