#include "tools/command_reference.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"

namespace ms::tools {
namespace {

// The values in the last {a,b} of a CLI11 type name, "TEXT:{keep,drop}". Of a mapping, "{a->x}:{x}", the first list's
// left sides: what users write.
std::vector<std::string> choices_of(const std::string& type) {
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin == std::string::npos ? 0 : begin);
  std::vector<std::string> choices;
  if (begin == std::string::npos || end == std::string::npos) return choices;
  for (size_t at = begin + 1; at < end;) {
    const size_t comma = std::min(type.find(',', at), end);
    const std::string choice = type.substr(at, comma - at);
    choices.push_back(choice.substr(0, choice.find("->")));
    at = comma + 1;
  }
  return choices;
}

bool is_positional(const CLI::Option& option) { return option.get_positional() && !option.nonpositional(); }

FlagReference flag_of(const CLI::Option& option) {
  FlagReference flag;
  if (is_positional(option)) {
    flag.names.push_back(option.get_single_name());
  } else {
    for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  }
  const bool is_switch = option.get_items_expected_max() == 0;
  const std::string type = option.get_type_name();
  if (!is_switch) {
    flag.value = type.substr(0, type.find(':'));
    if (option.get_items_expected_max() > 1) flag.value += " ...";
    flag.choices = choices_of(type);
  }
  flag.help = option.get_description();
  if (!is_switch && !option.get_default_str().empty()) flag.help += core::cat(" [", option.get_default_str(), "]");
  if (option.get_required()) flag.help += " (required)";
  return flag;
}

void add_flags(const CLI::App& app, CommandReference& command) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    if (is_positional(*option)) {
      command.args.push_back(flag_of(*option));
      continue;
    }
    const auto same = [&](const FlagGroup& group) { return group.heading == option->get_group(); };
    auto group = std::find_if(command.groups.begin(), command.groups.end(), same);
    if (group == command.groups.end()) {
      group = command.groups.insert(command.groups.end(), FlagGroup{option->get_group(), {}});
    }
    group->flags.push_back(flag_of(*option));
  }
}

}  // namespace

CommandReference reference_of(const CLI::App& app) {
  CommandReference command = {app.get_name(), app.get_description(), app.get_footer(), {}, {}, {}};
  add_flags(app, command);
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!verb->get_name().empty() && !verb->get_group().empty()) {
      command.verbs.push_back(reference_of(*verb));
    } else if (!verb->get_group().empty()) {
      add_flags(*verb, command);  // an option group
    }
  }
  return command;
}

std::vector<FlagGroup> groups_of(const core::ConfigFields& fields) {
  std::vector<FlagGroup> groups;
  for (const core::ConfigFields::FlagHelp& flag : fields.flag_help()) {
    if (groups.empty() || groups.back().heading != flag.section)
      groups.push_back({flag.section, {}, flag.introduction});
    groups.back().flags.push_back({flag.names, flag.value, flag.text, {}});
  }
  return groups;
}

}  // namespace ms::tools
