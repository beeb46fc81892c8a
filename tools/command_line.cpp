#include "tools/command_line.h"

#include "core/error.h"
#include "tools/guard.h"

namespace ms::tools {

bool parse(CLI::App& app, const std::vector<std::string>& args) {
  bool version = false;
  app.add_flag("--version", version, "Print the version and end");
  // A verb is required, but not beside --version.
  if (args == std::vector<std::string>{"--version"}) app.require_subcommand(0);
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
    throw core::Error(core::ErrorCode::kInvalidArgument, core::cat(e.what(), ". See ", app.get_name(), " --help"));
  }
  if (version) print_version(app.get_name());
  return !version;
}

}  // namespace ms::tools
