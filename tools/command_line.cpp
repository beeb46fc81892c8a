#include "tools/command_line.h"

#include "core/error.h"
#include "tools/guard.h"

namespace ms::tools {
namespace {

// CLI11 answers a misspelt verb, or a flag where the verb belongs, with "A subcommand is required": say what was seen.
void check_verb(CLI::App& app, const std::vector<std::string>& args) {
  if (!args.empty() && (args[0] == "-h" || args[0] == "--help" || args[0] == "--version")) return;
  std::string verbs;
  for (const CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) {
    if (!args.empty() && verb->check_name(args[0])) return;
    verbs += (verbs.empty() ? "" : ", ") + verb->get_name();
  }
  const std::string seen = args.empty() ? "a verb is wanted" : core::cat('"', args[0], "\" is no verb");
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat(seen, ": ", app.get_name(), " knows ", verbs, ". See ", app.get_name(), " --help"));
}

// CLI11 speaks of a missing path before it speaks of a flag that it does not know, which the user meant to be one.
std::string what_is_wrong(const CLI::App& app, const CLI::ParseError& error) {
  for (const std::string& arg : app.remaining(true)) {
    if (arg.size() > 1 && arg[0] == '-') return core::cat("unknown flag ", arg);
  }
  return error.what();
}

}  // namespace

bool parse(CLI::App& app, const std::vector<std::string>& args) {
  bool version = false;
  app.add_flag("--version", version, "Print the version and end");
  // A verb is required, but not beside --version.
  if (args == std::vector<std::string>{"--version"}) app.require_subcommand(0);
  check_verb(app, args);
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // CLI11 takes its vector from the back
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return false;
  } catch (const CLI::CallForAllHelp&) {
    print(app.help("", CLI::AppFormatMode::All));
    return false;
  } catch (const CLI::ParseError& e) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat(what_is_wrong(app, e), ". See ", app.get_name(), " --help"));
  }
  if (version) print_version(app.get_name());
  return !version;
}

}  // namespace ms::tools
