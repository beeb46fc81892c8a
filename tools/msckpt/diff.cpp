#include "tools/msckpt/diff.h"

#include <memory>
#include <string>
#include <vector>

#include "ckpt/diff.h"
#include "ckpt/inspect.h"
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

struct DiffFlags {
  std::vector<std::string> paths;
  bool json = false, by_recorded_hashes = false;
  int threads = default_threads();
};

int run_diff(const DiffFlags& flags) {
  const auto paths = input_paths(flags.paths);
  if (paths.empty()) return 0;  // stdin is empty: the upstream command failed and printed why
  if (paths.size() != 2) throw Error(ErrorCode::kInvalidArgument, cat("diff wants two paths, not ", paths.size()));
  const auto a = convert::open_source(paths[0]), b = convert::open_source(paths[1]);
  ckpt::DiffOptions options;
  options.by_recorded_hashes = flags.by_recorded_hashes;
  options.threads = flags.threads;
  options.stopped = interrupted;
  options.progress = progress_line("diff");
  const ckpt::DiffReport report = ckpt::diff_checkpoints(*a, *b, options);
  const auto& differences = report.differences;
  core::log_progress("");
  std::string text;
  for (const ckpt::Difference& difference : differences) {
    text += cat(difference.tensor, " (", core::role_name(difference.role), "): ", difference.text, "\n");
  }
  if (flags.json) {
    print_json({{"schema", ckpt::kJsonSchema},
                {"verb", "diff"},
                {"paths", paths},
                {"equal", differences.empty()},
                {"tensors_read", report.compared},
                {"tensors_by_recorded_hash", report.by_hash},
                {"differences", differences_json(differences)}});
  } else {
    print(text);
  }
  if (!differences.empty()) {
    core::log_info("msckpt.diff", cat(differences.size(), " tensors differ", ckpt::recorded_hashes_text(report)));
    return core::kExitAnswerIsNo;
  }
  core::log_info("msckpt.diff", cat("the same tensors with the same values", ckpt::recorded_hashes_text(report)));
  return 0;
}

}  // namespace

Verb add_diff(CLI::App& app) {
  const auto flags = std::make_shared<DiffFlags>();
  CLI::App* verb =
      add_command(app, "diff", "compare two checkpoints of any layouts; exit 10 if they differ", flags->json);
  add_paths(*verb, flags->paths, "Two checkpoint roots or directories");
  add_by_recorded_hashes(*verb, flags->by_recorded_hashes);
  add_threads(*verb, flags->threads);
  return {verb, [flags](const Process&) { return run_diff(*flags); }};
}

}  // namespace ms::tools::msckpt
