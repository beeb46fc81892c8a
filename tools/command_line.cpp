#include "tools/command_line.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>

#include "core/error.h"
#include "core/flag_syntax.h"
#include "core/printable.h"
#include "tools/command_reference.h"
#include "tools/guard.h"

namespace ms::tools {
namespace {

bool is_one_of(const std::string& arg, std::initializer_list<std::string_view> flags) {
  return std::find(flags.begin(), flags.end(), arg) != flags.end();
}

// True if args ask for something of the program itself, which needs no verb.
bool asks_without_verb(const std::vector<std::string>& args) {
  return !args.empty() && (is_one_of(args[0], {"-h", "--help", "--version", "--man", "--completion"}) ||
                           args[0].rfind("--completion=", 0) == 0);
}

// The verb that args begin with; nullptr if they ask for something of the program itself. For a misspelt verb, or a
// flag in its place, CLI11 says only "A subcommand is required"; this error says what was seen.
const CLI::App* verb_of(const CLI::App& app, const std::vector<std::string>& args) {
  if (asks_without_verb(args)) return nullptr;
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!args.empty() && verb->check_name(args[0])) return verb;
    names.push_back(verb->get_name());
  }
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  std::string seen = "a verb is wanted: ";
  if (!args.empty()) {
    const std::string near = core::nearest_word(args[0], names);
    seen = core::cat('"', args[0], "\" is no verb", near.empty() ? ": " : core::cat(". Did you mean ", near, "? "));
  }
  throw core::Error(core::ErrorCode::kInvalidArgument, core::cat(seen, app.get_name(), " knows ", all));
}

// The flags of a verb, or of the program if no verb is given.
core::FlagSyntax syntax_of(const CLI::App& app) {
  core::FlagSyntax syntax;
  for (const CLI::Option* option : app.get_options()) {
    const int most = option->get_items_expected_max() >= CLI::detail::expected_max_vector_size
                         ? core::FlagSyntax::kNoLimit
                         : option->get_items_expected_max();
    for (const std::string& name : option->get_lnames())
      syntax.add("--" + name, option->get_items_expected_min(), most);
    for (const std::string& name : option->get_snames()) syntax.add("-" + name, option->get_items_expected_min(), most);
  }
  return syntax;
}

// CLI11 reports a missing path before an unknown flag, but the flag is the user's mistake.
std::string what_is_wrong(const CLI::App& app, const core::FlagSyntax& syntax, const CLI::ParseError& error) {
  for (const std::string& arg : app.remaining(true)) {
    if (arg.size() < 2 || arg[0] != '-') continue;
    const std::string near = syntax.nearest(arg);
    return core::cat("unknown flag ", arg, near.empty() ? "" : core::cat(". Did you mean ", near, "?"));
  }
  return error.what();
}

}  // namespace

// CLI::PositiveNumber's message has the largest double with 309 digits.
CLI::Validator positive_number() {
  const auto check = [](const std::string& text) -> std::string {
    double number = 0;
    const bool valid = CLI::detail::lexical_cast(text, number) && number > 0;
    return valid ? "" : core::cat(core::shown_value(text), ": expected a number above 0");
  };
  return CLI::Validator(check, "POSITIVE");
}

bool parse(CLI::App& app, const std::vector<std::string>& args) {
  bool version = false, man = false;
  std::string shell;
  app.add_flag("--version", version, "Print the version and end");
  app.add_flag("--man", man, core::cat("Print the manual page and end: ", app.get_name(), " --man | man -l -"));
  app.add_option(
         "--completion", shell,
         core::cat("Print the completions for bash or zsh and end: source <(", app.get_name(), " --completion bash)"))
      ->check(CLI::IsMember({"bash", "zsh"}));
  // A verb is required otherwise; --help says so in its usage line.
  if (asks_without_verb(args) && !is_one_of(args[0], {"-h", "--help"})) app.require_subcommand(0);
  std::string command = app.get_name();
  try {
    const CLI::App* verb = verb_of(app, args);
    if (verb != nullptr) command += " " + verb->get_name();
    const core::FlagSyntax syntax = syntax_of(verb != nullptr ? *verb : app);
    syntax.check(std::span(args).subspan(verb != nullptr ? 1 : 0));
    std::vector<std::string> reversed(args.rbegin(), args.rend());  // CLI11 reads its vector from the end
    try {
      app.parse(reversed);
    } catch (const CLI::CallForHelp&) {
      print(app.help());
      return false;
    } catch (const CLI::CallForAllHelp&) {
      print(app.help("", CLI::AppFormatMode::All));
      return false;
    } catch (const CLI::ParseError& e) {
      throw core::Error(core::ErrorCode::kInvalidArgument, what_is_wrong(app, syntax, e));
    }
  } catch (const core::Error& e) {
    if (e.code() != core::ErrorCode::kInvalidArgument) throw;
    throw see_help(e, command);
  }
  if (version) print_version(app.get_name());
  if (man) print(man_page(reference_of(app)));
  if (!shell.empty()) print(completion(reference_of(app), shell));
  if (version || man || !shell.empty()) return false;
  check_instruction_set();
  return true;
}

}  // namespace ms::tools
