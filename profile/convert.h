// Converts traces to other formats, as files: `msprof convert` and mstrain's --profile-format.
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
// Chooses the format by the file extension: those above, and .pftrace for .perfetto-trace; throws kInvalidArgument
// otherwise.
ExportFormat export_format_of_path(const std::string& path);
std::string_view export_format_name(ExportFormat format);

// Converts the trace of one rank. Import issues are added to `stats` if it is not null. Throws kNotFound, kCorruptData,
// kIo; on failure out_path is unchanged.
void convert_file(const std::string& trace_path, const std::string& out_path, ExportFormat format,
                  ImportStats* stats = nullptr);

// Writes all ranks of a store into one file on one clock, process id = rank. If the store was loaded with
// keep_file_order, JSON keeps all arguments of other programs' JSON; also in convert_ranks. Throws kInvalidArgument for
// several ranks in the native format, whose files hold one rank.
void convert_merged(const Store& store, const std::string& out_path, ExportFormat format);
// Writes a rank as Chrome JSON with a marked critical path; critical: see write_chrome_trace. Throws kInvalidArgument
// for other formats.
void convert_with_path(const RankTrace& trace, std::span<const uint32_t> critical, const std::string& out_path,
                       ExportFormat format);
// Writes one file per rank, rank_%05d.<format>, into a folder (created if missing), and returns the paths.
std::vector<std::string> convert_ranks(const Store& store, const std::string& folder, ExportFormat format);

}  // namespace ms::profile
