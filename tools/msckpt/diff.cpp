#include "tools/msckpt/diff.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/diff.h"
#include "ckpt/inspect.h"
#include "ckpt/resume_diff.h"
#include "ckpt/tensor_diff.h"
#include "convert/detect.h"
#include "core/error.h"
#include "core/expression.h"
#include "core/log.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"
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
  bool tensors = false;
  std::string noise;
  double tolerance = 0;
  std::vector<std::string> renames;
};

// Checks whether a run that loads the second checkpoint continues as one that loads the first.
int run_resume(const DiffFlags& flags, const std::vector<std::string>& paths, ckpt::Source& a, ckpt::Source& b) {
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

std::vector<ckpt::TensorRename> renames_of(const DiffFlags& flags) {
  std::vector<ckpt::TensorRename> renames;
  for (const std::string& text : flags.renames) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ErrorCode::kInvalidArgument, cat("--rename ", text, ": expected FROM=TO"));
    renames.push_back(
        {core::user_expression(text.substr(0, equals), /*ignore_case=*/false, ErrorCode::kInvalidArgument, "--rename"),
         text.substr(equals + 1)});
  }
  return renames;
}

nlohmann::json tensors_json(const std::vector<ckpt::TensorDistance>& tensors) {
  nlohmann::json rows = nlohmann::json::array();
  for (const ckpt::TensorDistance& tensor : tensors) {
    rows.push_back({{"tensor", tensor.tensor}, {"beyond", tensor.is_beyond()}});
    if (!tensor.fault.empty()) {
      rows.back()["fault"] = tensor.fault;
    } else {
      rows.back().update(
          {{"relative_l2", tensor.relative_l2}, {"max_abs", tensor.max_abs}, {"allowed", tensor.allowed}});
    }
  }
  return rows;
}

std::string tensor_line(const ckpt::TensorDistance& tensor) {
  return cat(tensor.tensor, ": ",
             tensor.fault.empty() ? cat("relative L2 ", tensor.relative_l2, ", rounding explains ", tensor.allowed,
                                        "; max abs ", tensor.max_abs)
                                  : tensor.fault,
             "\n");
}

// At most kLines of them.
std::string tensor_lines(const std::vector<ckpt::TensorDistance>& tensors,
                         bool (*shown)(const ckpt::TensorDistance& tensor)) {
  constexpr int64_t kLines = 20;
  std::string text;
  int64_t count = 0;
  for (const ckpt::TensorDistance& tensor : tensors) {
    if (shown(tensor) && ++count <= kLines) text += tensor_line(tensor);
  }
  if (count > kLines) text += cat("and ", count - kLines, " more; --json lists all\n");
  return text;
}

std::string origin_text(const std::string& path, const ckpt::Source& source) {
  std::string layout;
  for (const auto& [axis, size] : source.info().layout.items()) {
    if (size.is_number()) layout += cat(layout.empty() ? "" : " ", axis, ' ', size.dump());
  }
  return cat("iteration ", source.info().iteration, " of ", path, layout.empty() ? "" : cat(" (", layout, ")"));
}

// Where two runs begin to compute something else.
int run_tensors(const DiffFlags& flags, const std::vector<std::string>& paths, ckpt::Source& a, ckpt::Source& b) {
  const auto noise =
      flags.noise.empty() ? nullptr : convert::open_comparable(paths[0], flags.noise, flags.source).second;
  ckpt::TensorDiffOptions options;
  options.noise = noise.get();
  options.tolerance = flags.tolerance;
  options.renames = renames_of(flags);
  options.threads = flags.threads;
  options.stopped = interrupted;
  options.progress = progress_line("diff");
  const std::vector<ckpt::TensorDistance> tensors = ckpt::diff_tensors(a, b, options);
  core::log_progress("");
  core::log_info("msckpt.diff", cat(origin_text(paths[0], a), " and ", origin_text(paths[1], b)));
  if (a.info().iteration != b.info().iteration)
    core::log_warning("msckpt.diff", "the iterations differ: different weights explain all of it");
  const auto beyond = std::ranges::count_if(tensors, &ckpt::TensorDistance::is_beyond);
  const auto absent = std::ranges::count_if(tensors, &ckpt::TensorDistance::is_absent);
  const auto first = std::ranges::find_if(tensors, &ckpt::TensorDistance::is_beyond);
  if (flags.json) {
    print_json({{"schema", ckpt::kJsonSchema},
                {"verb", "diff"},
                {"paths", paths},
                {"iterations", {a.info().iteration, b.info().iteration}},
                {"first", first == tensors.end() ? nlohmann::json() : nlohmann::json(first->tensor)},
                {"tensors", tensors_json(tensors)}});
  } else {
    std::string text;
    if (beyond > 0) text = cat("the first in the order of execution: ", tensor_line(*first));
    text += tensor_lines(tensors, [](const ckpt::TensorDistance& tensor) { return tensor.is_beyond(); });
    text += tensor_lines(tensors, [](const ckpt::TensorDistance& tensor) { return tensor.is_absent; });
    print(text);
  }
  const auto compared = static_cast<int64_t>(tensors.size()) - absent;
  const std::string only = absent > 0 ? cat("; ", absent, " only in one of both") : "";
  core::log_info("msckpt.diff", beyond > 0
                                    ? cat(beyond, " of ", compared, " tensors differ by more than rounding", only)
                                    : cat(compared, " tensors, none differs by more than rounding explains", only));
  return beyond > 0 || absent > 0 ? core::kExitAnswerIsNo : 0;
}

int run_diff(const DiffFlags& flags) {
  const auto paths = input_paths(flags.paths);
  if (paths.empty()) return 0;  // stdin is empty: the upstream command failed and printed why
  if (paths.size() != 2) throw Error(ErrorCode::kInvalidArgument, cat("diff needs two paths, but got ", paths.size()));
  const auto [a, b] = convert::open_comparable(paths[0], paths[1], flags.source);
  if (flags.resume) return run_resume(flags, paths, *a, *b);
  if (flags.tensors) return run_tensors(flags, paths, *a, *b);
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
  CLI::Option* tensors = verb->add_flag(
      "--tensors", flags->tensors,
      "Compare what two runs have computed (mstrain --save-tensors), on any layouts, in the order of execution: the "
      "first tensor that differs by more than rounding explains names the module to look at; exit 10 if there is one");
  CLI::Option* noise = verb->add_option(
      "--noise", flags->noise,
      "With --tensors: a third run, like the first with --save-tensors-perturbation. What it differs from the first "
      "by, "
      "times 10, counts as rounding (default: 1e-4 relative L2 for fp32, 1e-2 for fp16, 0.1 for bf16)");
  CLI::Option* tolerance = verb->add_option("--tolerance", flags->tolerance,
                                            "With --tensors: the relative L2 distance that counts as rounding")
                               ->check(CLI::Validator(
                                   [](const std::string& text) {
                                     double value = 0;
                                     return CLI::detail::lexical_cast(text, value) && value > 0 && std::isfinite(value)
                                                ? std::string()
                                                : cat(text, ": expected a number above 0");
                                   },
                                   "NUMBER"));
  CLI::Option* rename = verb->add_option(
      "--rename", flags->renames,
      "With --tensors: FROM=TO for names of the second; FROM is a regular expression, TO may contain its groups, $1");
  for (CLI::Option* option : {noise, tolerance, rename}) option->needs(tensors);
  noise->excludes(tolerance);
  for (const char* other : {"--resume", "--by-recorded-hashes"}) tensors->excludes(verb->get_option(other));
  add_source_flags(*verb, flags->source);
  return {verb, [flags](const Process&) { return run_diff(*flags); }};
}

}  // namespace ms::tools::msckpt
