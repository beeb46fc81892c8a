// A program's verbs and flags as data, and what is made of them: its manual page and its completions for bash and zsh.
//
// The table comes from what the program parses with, so that neither can name a flag that does not exist:
//   msckpt --man | man -l -
//   source <(msckpt --completion bash)
// `cmake --install` and the packages contain both (tools/cmake/reference.cmake).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"

namespace ms::tools {

struct FlagReference {
  std::vector<std::string> names;    // with their dashes; of a positional argument its name
  std::string value;                 // "INT", "TEXT ..."; empty: a switch
  std::string help;                  // may be empty
  std::vector<std::string> choices;  // the only values it takes; empty: any
};

struct FlagGroup {
  std::string heading;  // "Options"
  std::vector<FlagReference> flags;
  std::string introduction = {};  // a paragraph; may be empty
};

// A program, or one of its verbs.
struct CommandReference {
  std::string name;                 // "msckpt", or of a verb "convert"
  std::string summary;              // one sentence
  std::string footer;               // an example; may be empty
  std::vector<FlagReference> args;  // positional
  std::vector<FlagGroup> groups;
  std::vector<CommandReference> verbs;
};

// Of a program that CLI11 parses: its visible options and verbs, in the order of --help.
CommandReference reference_of(const CLI::App& app);
// The sections of a configuration's flags, in the order of its help(). Flags that are read with a notice, refused or
// stand for others are left out.
std::vector<FlagGroup> groups_of(const core::ConfigFields& fields);

// In roff (man(7)), section 1.
std::string man_page(const CommandReference& program);

// shell: "bash" or "zsh". Throws kInvalidArgument for others.
std::string completion(const CommandReference& program, std::string_view shell);

}  // namespace ms::tools
