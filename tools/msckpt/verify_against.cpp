#include "tools/msckpt/verify_against.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/diff.h"
#include "ckpt/inspect.h"
#include "ckpt/prove.h"
#include "ckpt/prove_report.h"
#include "ckpt/resume_diff.h"
#include "convert/detect.h"
#include "convert/gguf_source.h"
#include "core/error.h"
#include "core/log.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"
#include "tools/msckpt/proof.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

ckpt::ProofReport proof_of(const AgainstFlags& flags, const std::string& path, std::unique_ptr<ckpt::Source> source,
                           const ckpt::ProveOptions& options) {
  std::unique_ptr<ckpt::Source> target;
  try {
    convert::OpenOptions opening = flags.source;
    opening.for_proof = true;
    target = convert::open_source(path, opening);
    if (source->info().has_model != target->info().has_model) {
      convert::SourcePair pair = convert::open_comparable(flags.against, path, flags.source);
      source = std::move(pair.first);
      target = std::move(pair.second);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData && error.code() != ErrorCode::kUnsupported) throw;
    return ckpt::refused_target(error);  // a tensor is missing, duplicated or contradictory
  }
  return ckpt::prove(*source, *target, options);
}

int run_proof(const AgainstFlags& flags, const std::string& path, int threads, bool as_json) {
  ckpt::ProveOptions options;
  options.weights_only = flags.drop_optimizer;
  options.threads = threads;
  options.stopped = interrupted;
  options.progress = progress_line("prove");
  auto source = convert::open_source(flags.against, flags.source);
  const ckpt::ProofReport report = convert::is_gguf(path) ? convert::prove_gguf(*source, path, nullptr, options)
                                                          : proof_of(flags, path, std::move(source), options);
  core::log_progress("");
  log_proof(path, report);
  if (as_json) {
    nlohmann::json document = {
        {"schema", ckpt::kJsonSchema}, {"verb", "verify"}, {"path", path}, {"against", flags.against}};
    document["proof"] = ckpt::proof_json(report);
    document["ok"] = report.faults.empty();
    print_json(document);
  } else if (report.faults.empty()) {
    print(path + "\n");
  }
  if (report.faults.empty()) return 0;
  const bool refused = std::any_of(report.faults.begin(), report.faults.end(),
                                   [](const ckpt::Fault& fault) { return fault.kind == ckpt::FaultKind::kRefused; });
  return refused ? core::exit_code(ErrorCode::kCorruptData) : core::kExitAnswerIsNo;
}

}  // namespace

int verify_against(const AgainstFlags& flags, const std::string& path, int threads, bool as_json) {
  if (flags.prove) return run_proof(flags, path, threads, as_json);
  const auto [source, other] = convert::open_comparable(path, flags.against, flags.source);
  ckpt::DiffOptions options;
  options.weights_only = flags.drop_optimizer;
  options.by_recorded_hashes = flags.by_recorded_hashes;
  options.threads = threads;
  options.stopped = interrupted;
  options.progress = progress_line("verify");
  const ckpt::DiffReport report = ckpt::diff_checkpoints(*source, *other, options);
  core::log_progress("");
  for (const ckpt::Difference& difference : report.differences) {
    core::log_error("msckpt.verify", cat(path, ": ", difference.tensor, " (", core::role_name(difference.role),
                                         "), against ", flags.against, ": ", difference.text));
  }
  const auto settings = flags.drop_optimizer ? std::vector<std::string>() : ckpt::settings_differences(*source, *other);
  for (const std::string& difference : settings) {
    core::log_error("msckpt.verify", cat(path, ": optimizer, against ", flags.against, ": ", difference));
  }
  const bool same = report.differences.empty() && settings.empty();
  if (as_json) {
    print_json({{"schema", ckpt::kJsonSchema},
                {"verb", "verify"},
                {"path", path},
                {"against", flags.against},
                {"ok", same},
                {"tensors", source->shards().num_tensors()},
                {"tensors_read", report.compared},
                {"tensors_by_recorded_hash", report.by_hash},
                {"differences", differences_json(report.differences)},
                {"settings", settings}});
  } else if (same) {
    core::log_info("msckpt.verify",
                   cat(path, ": the same as ", flags.against, flags.drop_optimizer ? " in all weights" : "",
                       ckpt::recorded_hashes_text(report)));
    print(path + "\n");
  }
  return same ? 0 : core::kExitAnswerIsNo;
}

}  // namespace ms::tools::msckpt
