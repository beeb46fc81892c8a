#include "tools/command_line.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

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

// Letters to be changed, added or left out between the two.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

// "; did you mean --save-dir?", or nothing where no flag is spelled like it.
std::string nearest_flag(const CLI::App& app, const std::string& arg) {
  const std::string_view flag = std::string_view(arg).substr(0, arg.find('='));
  std::vector<const CLI::App*> places = {&app};
  for (const CLI::App* verb : app.get_subcommands()) places.push_back(verb);
  size_t least = 2 + flag.size() / 10;
  std::string nearest;
  for (const CLI::App* place : places) {
    for (const CLI::Option* option : place->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        const size_t distance = edit_distance(flag, "--" + name);
        if (distance >= least) continue;
        least = distance;
        nearest = "; did you mean --" + name + "?";
      }
    }
  }
  return nearest;
}

// CLI11 speaks of a missing path before it speaks of a flag that it does not know, which the user meant to be one.
std::string what_is_wrong(const CLI::App& app, const CLI::ParseError& error) {
  for (const std::string& arg : app.remaining(true)) {
    if (arg.size() > 1 && arg[0] == '-') return core::cat("unknown flag ", arg, nearest_flag(app, arg));
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
