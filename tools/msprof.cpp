// msprof: analyses traces of training runs (profile/README.md).
//
//   msprof VERB INPUT... [flags]     msprof --help lists the verbs
//
// A verb is a pair of files in tools/msprof/: it parses, loads, analyses and prints. Results go to stdout, import
// issues to the log.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/error.h"
#include "core/signals.h"
#include "tools/command_line.h"
#include "tools/guard.h"
#include "tools/msprof/verb.h"

namespace {

// Whether the parser reads the flags of this verb: adding those of all verbs takes longer than analysing a small trace.
// Without a verb at the start, a flag of the program is there (help, version), and a verb may follow; the manual page
// and the completions list all flags.
bool reads_flags(const std::vector<std::string>& args, std::string_view verb) {
  return std::any_of(args.begin(), args.end(), [&](const std::string& arg) {
    return arg == verb || arg.starts_with("--man") || arg.starts_with("--completion");
  });
}

int run(const std::vector<std::string>& args) {
  CLI::App app("Analyses traces of training runs: where the time goes and what to do about it", "msprof");
  app.require_subcommand(1);
  app.footer("Example: msprof analyze traces");
  const auto verbs = ms::tools::msprof::all_verbs();
  std::vector<CLI::App*> commands;
  const bool named = !args.empty() &&
                     std::any_of(verbs.begin(), verbs.end(), [&](const auto& verb) { return args[0] == verb->name(); });
  for (const auto& verb : verbs) {
    if (named && args[0] != verb->name()) {
      commands.push_back(nullptr);
      continue;
    }
    commands.push_back(app.add_subcommand(verb->name(), verb->help()));
    if (reads_flags(args, verb->name())) verb->add(*commands.back());
  }
  if (!ms::tools::parse(app, args)) return 0;
  for (size_t i = 0; i < verbs.size(); ++i) {
    if (commands[i] != nullptr && commands[i]->parsed()) return verbs[i]->run(args);
  }
  MS_CHECK(false, "a subcommand is required");
}

}  // namespace

int main(int argc, char** argv) {
  // Columns and blocks of text of large traces are freed to the system at once. Smaller pieces are kept: to map their
  // pages again takes longer than to fill them.
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  ms::core::install_termination_handlers();
  return ms::tools::run_guarded("msprof", [&] { return run(ms::tools::arguments(argc, argv)); });
}
