#include "profile/convert.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "profile/ingest/load.h"
#include "profile/report/chrome_trace.h"
#include "profile/report/native_trace.h"

namespace ms::profile {
namespace {

constexpr ExportFormat kFormats[] = {ExportFormat::kJson, ExportFormat::kJsonGz, ExportFormat::kJsonZst,
                                     ExportFormat::kNative};

void write(const std::vector<const RankTrace*>& ranks, const std::string& path, ExportFormat format) {
  if (format == ExportFormat::kNative) {
    if (ranks.size() == 1) return write_native_trace(*ranks[0], path);
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat(path, ": a native file is of one rank: give a folder, with --format mstrace"));
  }
  OutputFile out(path, format == ExportFormat::kJson     ? Compression::kNone
                       : format == ExportFormat::kJsonGz ? Compression::kGzip
                                                         : Compression::kZstd);
  write_chrome_trace(ranks, out);
  out.finish();
}

}  // namespace

std::string_view export_format_name(ExportFormat format) {
  constexpr std::string_view kNames[] = {"json", "json.gz", "json.zst", "mstrace"};
  return kNames[static_cast<size_t>(format)];
}

ExportFormat parse_export_format(std::string_view name) {
  for (const ExportFormat format : kFormats) {
    if (name == export_format_name(format)) return format;
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat("trace format ", name, ": expected json, json.gz, json.zst or mstrace"));
}

ExportFormat export_format_of_path(const std::string& path) {
  for (const ExportFormat format : kFormats) {
    if (path.ends_with(core::cat(".", export_format_name(format)))) return format;
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat(path, ": the name of the output must end in .json, .json.gz, .json.zst or .mstrace"));
}

void convert_file(const std::string& trace_path, const std::string& out_path, ExportFormat format, ImportStats* stats) {
  const Store store = load({trace_path}, {});
  if (stats != nullptr) stats->merge(store.stats);
  write({store.ranks.front().get()}, out_path, format);
}

void convert_merged(const Store& store, const std::string& out_path, ExportFormat format) {
  std::vector<const RankTrace*> ranks;
  for (const auto& trace : store.ranks) ranks.push_back(trace.get());
  write(ranks, out_path, format);
}

std::vector<std::string> convert_ranks(const Store& store, const std::string& folder, ExportFormat format) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw core::Error(core::ErrorCode::kIo, core::cat("create folder ", folder, ": ", error.message()));
  std::vector<std::string> paths;
  for (const auto& trace : store.ranks) {
    char name[32];
    std::snprintf(name, sizeof(name), "rank_%05d.", trace->rank);
    paths.push_back((std::filesystem::path(folder) / core::cat(name, export_format_name(format))).string());
    write({trace.get()}, paths.back(), format);
  }
  return paths;
}

}  // namespace ms::profile
