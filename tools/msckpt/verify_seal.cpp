#include "tools/msckpt/verify_seal.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "ckpt/commit.h"
#include "ckpt/inspect.h"
#include "ckpt/seal.h"
#include "convert/detect.h"
#include "core/error.h"
#include "core/log.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

// Describes which checks were made, and what they cannot detect.
std::string checks_text(const std::string& format, const SealFlags& flags, bool sealed) {
  if (sealed && flags.seal.empty()) return "the SHA-256 of every sealed file";
  if (sealed) return "the sealed logical hash of every tensor";
  std::string text = "headers, sizes, and that every tensor of the model exists once";
  if (flags.fast) return text + "; no data was read";
  text += format == "hf" ? ", the CRC-32 of .bin files" : ", the CRC-32 of every storage that has one";
  return text +
         (format == "hf"
              ? "; safetensors have no checksums, so a flipped bit in a weight is not detected: msckpt seal adds them"
              : "");
}

void print_report(const ckpt::VerifyReport& report, const std::string& path, const std::string& format,
                  const std::string& checks, bool as_json) {
  nlohmann::json findings = nlohmann::json::array();
  for (const ckpt::Finding& finding : report.findings) {
    core::log_error("msckpt.verify", cat(path, ": ", ckpt::finding_text(finding)));
    findings.push_back({{"file", finding.file}, {"tensor", finding.tensor}, {"text", finding.text}});
  }
  for (const std::string& note : report.notes) core::log_warning("msckpt.verify", cat(path, ": ", note));
  if (as_json) {
    print_json({{"schema", ckpt::kJsonSchema},
                {"verb", "verify"},
                {"path", path},
                {"format", format},
                {"ok", report.findings.empty()},
                {"checked", checks},
                {"iteration", report.iteration},
                {"tensors", report.tensors},
                {"bytes", report.bytes},
                {"findings", std::move(findings)},
                {"notes", report.notes}});
    return;
  }
  core::log_info("msckpt.verify", cat(path, ": ", format, ", ", report.tensors, " tensors; checked: ", checks));
  if (report.findings.empty()) print(path + "\n");
}

}  // namespace

bool is_foreign(const std::string& path) {
  try {
    return convert::detect_format(path).format != convert::Format::kNative;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo && ckpt::find_seal(path)) return true;  // the seal says what is missing
    if (error.code() == ErrorCode::kNotFound && !ckpt::list_generations(path).empty()) return false;
    throw;
  }
}

bool verify_by_seal(const SealFlags& flags, const std::string& path, int threads, bool as_json) {
  const std::optional<ckpt::Seal> seal =
      flags.seal.empty() ? ckpt::find_seal(path) : std::optional(ckpt::read_seal(flags.seal));
  ckpt::SealOptions options;
  options.threads = threads;
  options.stopped = interrupted;
  options.progress = progress_line("verify");
  const bool own_seal = seal && flags.seal.empty();
  ckpt::VerifyReport report;
  std::vector<ckpt::Finding> of_files;
  if (own_seal) of_files = ckpt::verify_files(path, *seal, options);
  const auto missing = std::count_if(of_files.begin(), of_files.end(), [&](const ckpt::Finding& finding) {
    return !std::filesystem::exists(std::filesystem::path(path) / finding.file);
  });
  const bool same_bytes = own_seal && missing == std::ssize(of_files);  // in the files that exist
  options.partial = missing > 0;
  std::string format = seal ? seal->format : "";
  if (own_seal && options.partial && same_bytes) {
    report.iteration = seal->iteration;
  } else {
    try {
      format = convert::format_name(convert::detect_format(path).format);
      const auto source = convert::open_source(path);
      if (same_bytes || flags.fast) {  // no need to read them again
        report.iteration = source->info().iteration;
        report.tensors = static_cast<int64_t>(source->shards().num_tensors());
      } else {
        report = ckpt::verify_source(*source, path, seal ? &*seal : nullptr, options);
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorruptData && of_files.empty()) throw;
      // The format's reader refuses the checkpoint if some files are missing; the seal already names those.
      if (!options.partial) report.findings.push_back({"", "", -1, -1, error.what()});
    }
  }
  core::log_progress("");
  report.findings.insert(report.findings.end(), of_files.begin(), of_files.end());
  print_report(report, path, format, checks_text(format, flags, seal.has_value()), as_json);
  return report.findings.empty();
}

}  // namespace ms::tools::msckpt
