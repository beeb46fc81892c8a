#include "tools/msckpt/verify.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/commit.h"
#include "ckpt/inspect.h"
#include "ckpt/manifest.h"
#include "ckpt/verify.h"
#include "core/error.h"
#include "core/log.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"
#include "tools/msckpt/source_flags.h"
#include "tools/msckpt/verify_against.h"
#include "tools/msckpt/verify_seal.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

struct VerifyFlags {
  std::vector<std::string> paths;
  bool json = false, fast = false, all = false;
  std::string seal;
  AgainstFlags against;
  int threads = default_threads();
};

// For a root, the newest generation, complete or not: falling back to an older one would hide the damage.
std::vector<std::filesystem::path> generations_to_verify(const std::string& path, bool all) {
  if (std::filesystem::exists(std::filesystem::path(path) / ckpt::kManifestName)) return {path};
  const auto generations = ckpt::list_generations(path);
  if (generations.empty()) {
    throw Error(ErrorCode::kNotFound,
                cat(path, ": no checkpoint here: no ", ckpt::kManifestName, " and no iter_* directory"));
  }
  std::vector<std::filesystem::path> paths;
  for (const ckpt::Generation& generation : generations) paths.push_back(generation.path);
  if (const auto note = ckpt::pointer_note(path, generations.front().iteration)) {
    core::log_warning("msckpt.verify", cat(path, ": ", *note));
  }
  if (!all) paths.resize(1);
  return paths;
}

void print_verified(const VerifyFlags& flags, const std::filesystem::path& path, const ckpt::VerifyReport& report) {
  json findings = json::array();
  for (const ckpt::Finding& finding : report.findings) {
    core::log_error("msckpt.verify", cat(path.string(), ": ", ckpt::finding_text(finding)));
    findings.push_back({{"file", finding.file}, {"tensor", finding.tensor}, {"text", finding.text}});
    if (finding.begin >= 0) findings.back().update({{"begin", finding.begin}, {"end", finding.end}});
  }
  for (const std::string& note : report.notes) {
    core::log_warning("msckpt.verify", cat(path.string(), ": ", note));
  }
  if (flags.json) {
    print_json({{"schema", ckpt::kJsonSchema},
                {"verb", "verify"},
                {"path", path.string()},
                {"ok", report.findings.empty()},
                {"fast", flags.fast},
                {"iteration", report.iteration},
                {"files", report.files},
                {"tensors", report.tensors},
                {"bytes", report.bytes},
                {"findings", std::move(findings)},
                {"notes", report.notes}});
  } else if (report.findings.empty()) {
    core::log_info("msckpt.verify", cat(path.string(), ": ", report.files, " files, ", report.tensors, " tensors, ",
                                        ckpt::bytes_text(report.bytes),
                                        flags.fast ? ": sizes and manifest are right" : ": every hash is right"));
    print(path.string() + "\n");
  }
}

int run_verify(const VerifyFlags& flags, const Process& process) {
  bool damaged = false;
  const auto refuse = [](const char* text) { throw Error(ErrorCode::kInvalidArgument, text); };
  const AgainstFlags& against = flags.against;
  if (against.against.empty()) {
    if (against.drop_optimizer) refuse("verify --drop-optimizer needs --against");
    if (against.prove) refuse("verify --prove needs --against, which names the source of the conversion");
    if (against.by_recorded_hashes) refuse("verify --by-recorded-hashes needs --against");
    if (against.source.as_named || !against.source.hf_cfg_dir.empty()) {
      refuse("verify --hf-cfg-dir and --as-named need --against");
    }
  } else {
    if (process.team != nullptr) refuse("verify --against runs in one process, not under mpirun");
    if (flags.fast || flags.all)
      refuse("verify --against compares every value of one checkpoint: omit --fast and --all");
    if (!flags.seal.empty())
      refuse("verify --seal compares with a seal, --against with a checkpoint: give one of them");
    if (against.prove && against.by_recorded_hashes) refuse("verify --prove reads all data: omit --by-recorded-hashes");
    bool differs = false;
    for (const std::string& path : input_paths(flags.paths)) {
      const int answer = verify_against(against, path, process.threads(flags.threads), flags.json);
      damaged = damaged || answer == core::exit_code(ErrorCode::kCorruptData);
      differs = differs || answer == core::kExitAnswerIsNo;
    }
    return damaged ? core::exit_code(ErrorCode::kCorruptData) : differs ? core::kExitAnswerIsNo : 0;
  }
  for (const std::string& given : agreed_list(process, [&] { return input_paths(flags.paths); })) {
    bool by_seal = false, holds = true;  // determined by the first process
    agree(process, [&] {
      if (!process.prints()) return;
      by_seal = !flags.seal.empty() || is_foreign(given);
      if (by_seal) holds = verify_by_seal({flags.seal, flags.fast}, given, flags.threads, flags.json);
    });
    by_seal = agreed_list(process, [&] { return std::vector<std::string>(by_seal ? 1 : 0); }).size() == 1;
    holds = agreed_list(process, [&] { return std::vector<std::string>(holds ? 1 : 0); }).size() == 1;
    damaged = damaged || !holds;
    if (by_seal) continue;
    const auto list = [&] {
      std::vector<std::string> paths;
      for (const std::filesystem::path& path : generations_to_verify(given, flags.all)) paths.push_back(path.string());
      return paths;
    };
    for (const std::filesystem::path path : agreed_list(process, list)) {
      ckpt::VerifyOptions options;
      options.fast = flags.fast;
      options.threads = process.threads(flags.threads);
      options.progress = progress_line("verify");
      options.stopped = interrupted;
      options.team = process.team;
      const ckpt::VerifyReport report = ckpt::verify_generation(path, options);
      core::log_progress("");
      if (process.prints()) print_verified(flags, path, report);
      damaged = damaged || !report.findings.empty();
    }
  }
  return damaged ? core::exit_code(ErrorCode::kCorruptData) : 0;
}

}  // namespace

Verb add_verify(CLI::App& app) {
  const auto flags = std::make_shared<VerifyFlags>();
  CLI::App* verb =
      add_command(app, "verify",
                  "check every hash, or what the format provides, and print the path if it is intact (exit 3 if not); "
                  "with --against, compare with another checkpoint (exit 10 if they differ)",
                  flags->json);
  add_paths(*verb, flags->paths,
            "Checkpoint roots (the newest checkpoint is verified) or directories; - reads a list of them from stdin");
  verb->add_flag("--fast", flags->fast, "Check only manifest, file sizes and coverage, no data");
  verb->add_flag("--all", flags->all, "Check every checkpoint of a root, not only the newest");
  verb->add_option(
      "--seal", flags->seal,
      "Compare the tensors with this seal (msckpt seal) of another folder, of which this one is a resharded "
      "or converted copy with the same element types");
  verb->add_option("--against", flags->against.against,
                   "Compare with this checkpoint, whatever the formats and layouts: exit 10 unless both hold the same "
                   "tensors with the same values");
  verb->add_flag(
      "--prove", flags->against.prove,
      "With --against: prove that this is a conversion of that checkpoint, by any tool, to any element type; if not, "
      "print what is wrong with each tensor and exit 10, or 3 if the files contradict each other");
  verb->add_flag("--drop-optimizer", flags->against.drop_optimizer, "With --against: ignore optimizer state");
  add_by_recorded_hashes(*verb, flags->against.by_recorded_hashes);
  add_threads(*verb, flags->threads);
  add_source_flags(*verb, flags->against.source);
  return {verb, [flags](const Process& process) { return run_verify(*flags, process); }, true};
}

}  // namespace ms::tools::msckpt
