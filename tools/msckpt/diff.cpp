#include "tools/msckpt/diff.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/diff.h"
#include "ckpt/inspect.h"
#include "ckpt/recording.h"
#include "ckpt/resume_diff.h"
#include "convert/detect.h"
#include "core/error.h"
#include "core/log.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"
#include "tools/msckpt/diff_tensors.h"
#include "tools/msckpt/source_flags.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

struct DiffFlags {
  std::vector<std::string> paths;
  bool json = false, by_recorded_hashes = false, resume = false;
  int threads = default_threads();
  convert::OpenOptions source;
  DiffTensorsFlags tensors;
};

// Checks whether a run that loads the second checkpoint continues as one that loads the first.
int run_resume(const DiffFlags& flags, const std::vector<std::string>& paths, ckpt::Source& a, ckpt::Source& b) {
  for (const auto& [path, source] : {std::pair(paths[0], &a), std::pair(paths[1], &b)}) {
    if (ckpt::is_recording(source->info()))
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--resume: ", path, " is no checkpoint, but what modules computed (mstrain --save-tensors)"));
  }
  const ckpt::ResumeReport report = ckpt::diff_resume(a, b);
  if (flags.json) {
    nlohmann::json printed = ckpt::to_json(report);
    printed.update({{"schema", ckpt::kJsonSchema}, {"verb", "diff"}, {"paths", paths}});
    print_json(printed);
  } else {
    std::string text;
    for (const ckpt::ResumeFinding& finding : report.kinds) {
      text +=
          cat(finding.kind, ": ", answer_text(finding.answer), finding.text.empty() ? "" : ": ", finding.text, "\n");
    }
    print(cat(text, verdict_text(report.verdict), "\n"));
  }
  return report.verdict == ckpt::ResumeVerdict::kContinuesExactly ? 0 : core::kExitAnswerIsNo;
}

int run_diff(const DiffFlags& flags) {
  const auto paths = input_paths(flags.paths);
  if (paths.empty()) return 0;  // stdin is empty: the upstream command failed and printed why
  if (paths.size() != 2) throw Error(ErrorCode::kInvalidArgument, cat("diff needs two paths, but got ", paths.size()));
  if (flags.tensors.tensors) return diff_tensors(flags.tensors, paths, flags.source, flags.threads, flags.json);
  const auto [a, b] = convert::open_comparable(paths[0], paths[1], flags.source);
  if (flags.resume) return run_resume(flags, paths, *a, *b);
  ckpt::DiffOptions options;
  options.by_recorded_hashes = flags.by_recorded_hashes;
  options.threads = flags.threads;
  options.stopped = interrupted;
  options.progress = progress_line("diff");
  const ckpt::DiffReport report = ckpt::diff_checkpoints(*a, *b, options);
  const auto& differences = report.differences;
  core::log_progress("");
  const std::vector<std::string> settings = ckpt::settings_differences(*a, *b);
  std::string text;
  for (const ckpt::Difference& difference : differences) {
    text += cat(difference.tensor, " (", core::role_name(difference.role), "): ", difference.text, "\n");
  }
  for (const std::string& difference : settings) text += cat("optimizer: ", difference, "\n");
  if (flags.json) {
    print_json({{"schema", ckpt::kJsonSchema},
                {"verb", "diff"},
                {"paths", paths},
                {"equal", differences.empty() && settings.empty()},
                {"tensors_read", report.compared},
                {"tensors_by_recorded_hash", report.by_hash},
                {"differences", differences_json(differences)},
                {"settings", settings}});
  } else {
    print(text);
  }
  if (!differences.empty()) {
    core::log_info("msckpt.diff", cat(differences.size(), " tensors differ", ckpt::recorded_hashes_text(report)));
  }
  if (!settings.empty()) core::log_info("msckpt.diff", cat(settings.size(), " settings of the optimizer differ"));
  if (!differences.empty() || !settings.empty()) return core::kExitAnswerIsNo;
  core::log_info("msckpt.diff", cat("the same tensors with the same values", ckpt::recorded_hashes_text(report)));
  return 0;
}

}  // namespace

Verb add_diff(CLI::App& app) {
  const auto flags = std::make_shared<DiffFlags>();
  CLI::App* verb = add_command(
      app, "diff", "compare two checkpoints of any formats and layouts; exit 10 if they differ", flags->json);
  add_paths(*verb, flags->paths, "Two checkpoints: roots, directories, model folders or files of tensors");
  add_by_recorded_hashes(*verb, flags->by_recorded_hashes);
  add_threads(*verb, flags->threads);
  verb->add_flag(
      "--resume", flags->resume,
      "Check whether a run that loads the second continues as one that loads the first. Prints a verdict for weights, "
      "master weights, moments, step, groups and schedule, rng and data position; exit 10 unless it continues exactly");
  add_diff_tensors_flags(*verb, flags->tensors);
  add_source_flags(*verb, flags->source);
  return {verb, [flags](const Process&) { return run_diff(*flags); }};
}

}  // namespace ms::tools::msckpt
