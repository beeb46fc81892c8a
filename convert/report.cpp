#include "convert/report.h"

#include <filesystem>

#include "ckpt/prove_report.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/result_folder.h"

namespace ms::convert {

using core::cat;
using nlohmann::json;
namespace fs = std::filesystem;

std::string report_path(const std::string& save_dir) {
  fs::path folder = fs::path(save_dir).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (!folder.has_filename() || folder.filename() == "." || folder.filename() == "..") {
    folder = fs::absolute(folder).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();
  }
  if (!folder.has_filename()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, cat("--save-dir ", save_dir, ": has no parent folder"));
  }
  return folder.string() + core::kReportSuffix;
}

json report_json(const ConvertReport& report, const ConvertOptions& options) {
  json tensors = json::array();
  for (const ckpt::WrittenTensor& tensor : report.written) {
    tensors.push_back({{"name", tensor.key},
                       {"role", core::role_name(tensor.role)},
                       {"dtype", core::dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"logical_xxh3", tensor.logical_xxh3 ? json(core::hex16(*tensor.logical_xxh3)) : json()}});
  }
  json document = {{"schema", "msckpt-report/1"},
                   {"msckpt", MS_VERSION},
                   {"source",
                    {{"path", options.load_dir},
                     {"format", format_name(report.from)},
                     {"detected_by", report.detected_by},
                     {"iteration", report.iteration}}},
                   {"result", {{"path", report.path}, {"format", format_name(report.to)}}},
                   {"command", options.command},
                   {"carried", report.carried},
                   {"dropped", report.dropped},
                   {"from_flags", report.from_flags},
                   {"decisions", report.decisions},
                   {"settings", report.settings},
                   {"tensors", std::move(tensors)}};
  if (report.proof) document["proof"] = ckpt::proof_json(*report.proof);
  return document;
}

std::string keep_report(const ConvertReport& report, const ConvertOptions& options) {
  std::string path = report_path(options.save_dir);
  const json document = report_json(report, options);
  const core::ResultFolder staging(path);  // the next attempt, and msckpt gc, find what a kill leaves
  const std::string staged = (staging.staged() / "report").string();
  core::write_text_atomically(staged, document.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  core::rename_durably(staged, path);
  return path;
}

}  // namespace ms::convert
