#include "tools/msckpt/diff_tensors.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "ckpt/inspect.h"
#include "ckpt/recording.h"
#include "ckpt/tensor_diff.h"
#include "core/error.h"
#include "core/expression.h"
#include "core/log.h"
#include "core/printable.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"

namespace ms::tools::msckpt {
namespace {

using ckpt::TensorDistance;
using core::cat;
using core::Error;
using core::ErrorCode;

constexpr const char* kWhere = "msckpt.diff";

std::vector<ckpt::TensorRename> renames_of(const DiffTensorsFlags& flags) {
  std::vector<ckpt::TensorRename> renames;
  for (const std::string& text : flags.renames) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ErrorCode::kInvalidArgument, cat("--rename ", core::shown_value(text), ": expected FROM=TO"));
    renames.push_back(
        {core::user_expression(text.substr(0, equals), /*ignore_case=*/false, ErrorCode::kInvalidArgument, "--rename"),
         text.substr(equals + 1)});
  }
  return renames;
}

// What is compared, each opened from its own directory.
struct Opened {
  std::vector<std::string> directories;  // two, or three with the noise
  convert::SourcePair runs;
  std::unique_ptr<ckpt::Source> noise;
};

Opened open_runs(const DiffTensorsFlags& flags, const std::vector<std::string>& paths,
                 const convert::OpenOptions& source) {
  std::vector<std::filesystem::path> given(paths.begin(), paths.end());
  if (!flags.noise.empty()) given.emplace_back(flags.noise);
  Opened opened;
  for (const std::filesystem::path& directory : ckpt::directories_of_one_iteration(given, flags.iteration))
    opened.directories.push_back(directory.string());
  const std::vector<std::string>& at = opened.directories;
  opened.runs = convert::open_comparable(at[0], at[1], source);
  if (!flags.noise.empty()) opened.noise = convert::open_comparable(at[0], at[2], source).second;
  return opened;
}

nlohmann::json tensors_json(const std::vector<TensorDistance>& tensors) {
  nlohmann::json rows = nlohmann::json::array();
  for (const TensorDistance& tensor : tensors) {
    nlohmann::json& row = rows.emplace_back(nlohmann::json{{"tensor", tensor.tensor}, {"beyond", tensor.is_beyond()}});
    if (!tensor.incomparable.empty()) row["not_comparable"] = tensor.incomparable;
    if (!tensor.fault.empty()) {
      row["fault"] = tensor.fault;
    } else {
      row.update({{"relative_l2", tensor.relative_l2}, {"max_abs", tensor.max_abs}, {"allowed", tensor.allowed}});
    }
  }
  return rows;
}

std::string distance_text(const TensorDistance& tensor) {
  return cat("relative L2 ", tensor.relative_l2, ", rounding explains ", tensor.allowed, "; max abs ", tensor.max_abs);
}

std::string tensor_line(const TensorDistance& tensor) {
  if (!tensor.fault.empty()) return cat(tensor.tensor, ": ", tensor.fault, "\n");
  if (tensor.is_beyond()) return cat(tensor.tensor, ": ", distance_text(tensor), "\n");
  return cat(tensor.tensor, ": ", tensor.incomparable, " in both: not comparable\n");
}

// At most kLines of them.
template <class Shown>
std::string tensor_lines(const std::vector<TensorDistance>& tensors, const Shown& shown) {
  constexpr int64_t kLines = 20;
  std::string text;
  int64_t count = 0;
  for (const TensorDistance& tensor : tensors) {
    if (shown(tensor) && ++count <= kLines) text += tensor_line(tensor);
  }
  if (count > kLines) text += cat("and ", count - kLines, " more; --json lists all\n");
  return text;
}

// Neither beyond nor compared in all its elements.
bool is_incomparable(const TensorDistance& tensor) { return !tensor.is_beyond() && !tensor.incomparable.empty(); }

// Of what was compared and found equal: how near to the limit.
std::string closest_text(const std::vector<TensorDistance>& tensors) {
  const auto identical = std::ranges::count_if(tensors, &TensorDistance::is_identical);
  if (identical == static_cast<int64_t>(tensors.size())) return "identical to the bit\n";
  const std::string count = identical > 0 ? cat("identical to the bit: ", identical) : "";
  const auto share = [](const TensorDistance& tensor) { return tensor.is_beyond() ? -1.0 : tensor.share(); };
  const auto closest = std::ranges::max_element(tensors, {}, share);
  if (closest == tensors.end() || closest->is_beyond()) return "";
  if (closest->relative_l2 == 0) return count.empty() ? "" : cat(count, " of ", tensors.size(), " tensors\n");
  std::array<char, 16> share_text;
  std::snprintf(share_text.data(), share_text.size(), "%.2g", closest->share());
  return cat("closest: ", closest->tensor, " at ", share_text.data(), " of what is allowed (relative L2 ",
             closest->relative_l2, " of ", closest->allowed, "; max abs ", closest->max_abs, ")",
             count.empty() ? "" : cat("; ", count), "\n");
}

std::string origin_text(const std::string& path, const ckpt::Source& source) {
  std::string layout;
  for (const auto& [axis, size] : source.info().layout.items()) {
    if (size.is_number()) layout += cat(layout.empty() ? "" : " ", axis, ' ', size.dump());
  }
  return cat("iteration ", source.info().iteration, " of ", path, layout.empty() ? "" : cat(" (", layout, ")"));
}

// What the reader has to know besides the distances.
void log_circumstances(const Opened& opened, const ckpt::TensorDiffOptions& options, const DiffTensorsFlags& flags) {
  const ckpt::Source &a = *opened.runs.first, &b = *opened.runs.second;
  core::log_info(kWhere, cat(origin_text(opened.directories[0], a), " and ", origin_text(opened.directories[1], b)));
  if (a.info().iteration != b.info().iteration)
    core::log_warning(kWhere, "the iterations differ: different weights explain all of it");
  const auto perturbation = [](const ckpt::Source& source) {
    const auto recording = ckpt::recording_of(source.info());
    return recording ? recording->perturbation.value_or(0) : 0;
  };
  if (perturbation(a) != perturbation(b))
    core::log_warning(kWhere, cat("--save-tensors-perturbation is ", perturbation(a), " and ", perturbation(b),
                                  ": a perturbed run belongs behind --noise"));
  const std::vector<std::string> differences = ckpt::config_differences(a, b);
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, differences.size()); ++i) text += cat(i > 0 ? "; " : "", differences[i]);
  if (differences.size() > kShown) text += cat("; and ", differences.size() - kShown, " more");
  if (!text.empty()) core::log_info(kWhere, cat("the configurations differ: ", text));
  for (const size_t idle : ckpt::renames_without_effect(b, options.renames))
    core::log_warning(kWhere, cat("--rename ", flags.renames[idle], ": changes no name of the second"));
}

std::string verdict_text(const std::vector<TensorDistance>& tensors) {
  const auto beyond = std::ranges::count_if(tensors, &TensorDistance::is_beyond);
  const auto absent = std::ranges::count_if(tensors, &TensorDistance::is_absent);
  const auto unknown = std::ranges::count_if(tensors, is_incomparable);
  const auto compared = static_cast<int64_t>(tensors.size()) - absent;
  std::string text = beyond > 0   ? cat(beyond, " of ", compared, " tensors differ by more than rounding")
                     : absent > 0 ? cat("the ", compared, " tensors of both differ by no more than rounding explains")
                                  : cat(compared, " tensors, none differs by more than rounding explains");
  if (absent > 0) text += cat("; ", absent, " only in one of both");
  if (unknown > 0) text += cat("; ", unknown, " are not finite in both, and not comparable");
  return text;
}

// Where limits have not been measured.
void log_unmeasured(const std::vector<TensorDistance>& tensors) {
  const auto is_far = [](const TensorDistance& tensor) { return tensor.is_beyond() && tensor.fault.empty(); };
  if (std::ranges::none_of(tensors, is_far)) return;
  core::log_warning(kWhere,
                    "what rounding explains is a default of the dtype, not measured: a gradient that is zero but for "
                    "rounding, such as that of a bias of keys, is beyond it in any two layouts. Record the first run "
                    "once more with --save-tensors-perturbation, and give it by --noise");
}

std::string report_text(const std::vector<TensorDistance>& tensors) {
  const auto first = std::ranges::find_if(tensors, &TensorDistance::is_beyond);
  const TensorDistance* told = first == tensors.end() ? nullptr : &*first;
  std::string text;
  if (told != nullptr) text = cat("the first in the order of execution: ", tensor_line(*told));
  text += tensor_lines(tensors, [&](const TensorDistance& tensor) { return tensor.is_beyond() && &tensor != told; });
  text += tensor_lines(tensors, [](const TensorDistance& tensor) { return tensor.is_absent; });
  text += tensor_lines(tensors, is_incomparable);
  return told == nullptr ? text + closest_text(tensors) : text;
}

std::string check_tolerance(const std::string& text) {
  double value = 0;
  const bool is_number = CLI::detail::lexical_cast(text, value) && value >= 0 && std::isfinite(value);
  return is_number ? std::string() : cat(core::shown_value(text), ": expected a number, 0 or above");
}

}  // namespace

void add_diff_tensors_flags(CLI::App& verb, DiffTensorsFlags& flags) {
  CLI::Option* tensors = verb.add_flag(
      "--tensors", flags.tensors,
      "Compare what two runs have computed (mstrain --save-tensors), on any layouts, in the order of execution: the "
      "first tensor that differs by more than rounding explains names the module to look at; exit 10 if there is one, "
      "or something is missing or not finite. Of folders with several iterations the smallest common one");
  CLI::Option* iteration =
      verb.add_option("--iteration", flags.iteration, "With --tensors: the iteration to compare")
          ->check(CLI::Validator(
              [](const std::string& text) {
                int64_t value = 0;
                return CLI::detail::lexical_cast(text, value) && value > 0
                           ? std::string()
                           : cat("--iteration ", core::shown_value(text), ": expected a whole number, at least 1");
              },
              "N"));
  CLI::Option* noise = verb.add_option(
      "--noise", flags.noise,
      "With --tensors: a third run, like the first with --save-tensors-perturbation. What it differs from the first "
      "by, times 3, counts as rounding (default: 1e-4 relative L2 for fp32, 1e-2 for fp16, 0.1 for bf16)");
  CLI::Option* tolerance = verb.add_option("--tolerance", flags.tolerance,
                                           "With --tensors: the relative L2 distance that counts as rounding; 0: none")
                               ->check(CLI::Validator(check_tolerance, "NUMBER"));
  CLI::Option* rename =
      verb.add_option("--rename", flags.renames,
                      "With --tensors: FROM=TO for names of the second; FROM is a regular expression, TO may contain "
                      "its groups, $1. Once for each rename")
          ->allow_extra_args(false);
  for (CLI::Option* option : {noise, tolerance, rename, iteration}) option->needs(tensors);
  noise->excludes(tolerance);
  for (const char* other : {"--resume", "--by-recorded-hashes"}) tensors->excludes(verb.get_option(other));
}

int diff_tensors(const DiffTensorsFlags& flags, const std::vector<std::string>& paths,
                 const convert::OpenOptions& source, int threads, bool as_json) {
  const Opened opened = open_runs(flags, paths, source);
  ckpt::Source &a = *opened.runs.first, &b = *opened.runs.second;
  ckpt::TensorDiffOptions options;
  options.noise = opened.noise.get();
  options.tolerance = flags.tolerance;
  options.renames = renames_of(flags);
  options.threads = threads;
  options.stopped = interrupted;
  options.progress = progress_line("diff");
  const std::vector<TensorDistance> tensors = ckpt::diff_tensors(a, b, options);
  core::log_progress("");
  log_circumstances(opened, options, flags);
  if (as_json) {
    const auto first = std::ranges::find_if(tensors, &TensorDistance::is_beyond);
    print_json({{"schema", ckpt::kJsonSchema},
                {"verb", "diff"},
                {"paths", paths},
                {"iterations", {a.info().iteration, b.info().iteration}},
                {"first", first == tensors.end() ? nlohmann::json() : nlohmann::json(first->tensor)},
                {"tensors", tensors_json(tensors)}});
  } else {
    print(report_text(tensors));
  }
  core::log_info(kWhere, verdict_text(tensors));
  if (flags.noise.empty() && !flags.tolerance) log_unmeasured(tensors);
  const bool is_yes = std::ranges::none_of(tensors, [](const TensorDistance& tensor) {
    return tensor.is_beyond() || tensor.is_absent || is_incomparable(tensor);
  });
  return is_yes ? 0 : core::kExitAnswerIsNo;
}

}  // namespace ms::tools::msckpt
