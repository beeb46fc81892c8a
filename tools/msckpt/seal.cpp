#include "tools/msckpt/seal.h"

#include <memory>
#include <string>
#include <vector>

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

struct SealFlagsOfVerb {
  std::vector<std::string> paths;
  bool json = false;
  int threads = default_threads();
};

int run_seal(const SealFlagsOfVerb& flags, const Process& process) {
  for (const std::string& path : input_paths(flags.paths)) {
    const auto source = convert::open_source(path);
    ckpt::SealOptions options;
    options.threads = process.threads(flags.threads);
    options.stopped = interrupted;
    options.progress = progress_line("seal");
    const std::string format(convert::format_name(convert::detect_format(path).format));
    const ckpt::Seal seal = ckpt::make_seal(*source, path, format, options);
    ckpt::write_seal(path, seal);
    core::log_progress("");
    core::log_info("msckpt.seal", cat(path, ": ", seal.tensors.size(), " tensors and ", seal.files.size(),
                                      " files are sealed by ", ckpt::kSealName, " and ", ckpt::kSumsName));
    const std::string made = cat(path, path.ends_with("/") ? "" : "/", ckpt::kSealName);
    if (flags.json) {
      print_json({{"schema", ckpt::kJsonSchema},
                  {"verb", "seal"},
                  {"path", path},
                  {"format", format},
                  {"seal", made},
                  {"tensors", seal.tensors.size()},
                  {"files", seal.files.size()}});
    } else {
      print(path + "\n");
    }
  }
  return 0;
}

}  // namespace

Verb add_seal(CLI::App& app) {
  const auto flags = std::make_shared<SealFlagsOfVerb>();
  CLI::App* verb =
      add_command(app, "seal",
                  "write checksums into the folder of a checkpoint whose format has none: msckpt.seal.json for msckpt "
                  "verify, SHA256SUMS for sha256sum -c",
                  flags->json);
  add_paths(*verb, flags->paths, "Checkpoint folders of any format; - reads a list of them from stdin");
  add_threads(*verb, flags->threads);
  return {verb, [flags](const Process& process) { return run_seal(*flags, process); }};
}

}  // namespace ms::tools::msckpt
