#include "profile/convert.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/printable.h"
#include "profile/ingest/load.h"
#include "profile/report/chrome_trace.h"
#include "profile/report/native_trace.h"
#include "profile/report/perfetto_trace.h"

namespace ms::profile {
namespace {

struct Form {
  ExportFormat format;
  std::string_view name, short_name;  // short_name: extension of a file
  Compression compression;
};
constexpr Form kForms[] = {{ExportFormat::kJson, "json", {}, Compression::kNone},
                           {ExportFormat::kJsonGz, "json.gz", {}, Compression::kGzip},
                           {ExportFormat::kJsonZst, "json.zst", {}, Compression::kZstd},
                           {ExportFormat::kPerfetto, "perfetto-trace", "pftrace", Compression::kNone},
                           {ExportFormat::kPerfettoGz, "perfetto-trace.gz", "pftrace.gz", Compression::kGzip},
                           {ExportFormat::kPerfettoZst, "perfetto-trace.zst", "pftrace.zst", Compression::kZstd},
                           {ExportFormat::kNative, "mstrace", {}, Compression::kNone}};

const Form& form_of(ExportFormat format) { return kForms[static_cast<size_t>(format)]; }

void write(const std::vector<const RankTrace*>& ranks, const std::string& path, ExportFormat format,
           std::span<const uint32_t> critical = {}, std::span<const FileInfo> files = {}) {
  if (format == ExportFormat::kNative) {
    if (ranks.size() == 1) return write_native_trace(*ranks[0], path);
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat(path, ": a native file holds one rank: give a folder, with --format mstrace"));
  }
  OutputFile out(path, form_of(format).compression);
  if (form_of(format).name.starts_with("json")) {
    write_chrome_trace(ranks, out, critical, files);
  } else {
    write_perfetto_trace(ranks, out);
  }
  out.finish();
}

}  // namespace

std::string_view export_format_name(ExportFormat format) { return form_of(format).name; }

ExportFormat parse_export_format(std::string_view name) {
  for (const Form& form : kForms) {
    if (name == form.name) return form.format;
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat("trace format ", core::shown_value(name),
                              ": expected json or perfetto-trace, each also with .gz or .zst, or mstrace"));
}

ExportFormat export_format_of_path(const std::string& path) {
  for (const Form& form : kForms) {
    for (const std::string_view end : {form.name, form.short_name}) {
      if (!end.empty() && path.ends_with(core::cat(".", end))) return form.format;
    }
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat(path,
                              ": the name of the output must end in .json, .perfetto-trace or .pftrace, each also "
                              "with .gz or .zst, or in .mstrace"));
}

void convert_file(const std::string& trace_path, const std::string& out_path, ExportFormat format, ImportStats* stats) {
  const Store store = load({trace_path}, {});
  if (stats != nullptr) stats->merge(store.stats);
  write({store.ranks.front().get()}, out_path, format);
}

void convert_merged(const Store& store, const std::string& out_path, ExportFormat format) {
  std::vector<const RankTrace*> ranks;
  for (const auto& trace : store.ranks) ranks.push_back(trace.get());
  write(ranks, out_path, format, {}, store.files);
}

void convert_with_path(const RankTrace& trace, std::span<const uint32_t> critical, const std::string& out_path,
                       ExportFormat format) {
  if (!form_of(format).name.starts_with("json")) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat(out_path, ": only JSON can mark a path: give .json, .json.gz or .json.zst"));
  }
  write({&trace}, out_path, format, critical);
}

std::vector<std::string> convert_ranks(const Store& store, const std::string& folder, ExportFormat format) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw core::Error(core::ErrorCode::kIo, core::cat("cannot create folder ", folder, ": ", error.message()));
  std::vector<std::string> paths;
  for (const auto& trace : store.ranks) {
    char name[32];
    std::snprintf(name, sizeof(name), "rank_%05d.", trace->rank);
    paths.push_back((std::filesystem::path(folder) / core::cat(name, export_format_name(format))).string());
    write({trace.get()}, paths.back(), format, {}, store.files);
  }
  return paths;
}

}  // namespace ms::profile
