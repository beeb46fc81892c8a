#include <string>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "tools/command_reference.h"

namespace ms::tools {
namespace {

// The names of all flags of a command.
std::string flag_words(const CommandReference& command) {
  std::string words;
  for (const FlagGroup& group : command.groups) {
    for (const FlagReference& flag : group.flags) {
      for (const std::string& name : flag.names) words += (words.empty() ? "" : " ") + name;
    }
  }
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// Lines "    VERB:FLAG | VERB:ALIAS) words="a b" ;;" of the flags that take certain values only.
std::string bash_choices(const CommandReference& command, const std::string& verb) {
  std::string out;
  for (const FlagGroup& group : command.groups) {
    for (const FlagReference& flag : group.flags) {
      if (flag.choices.empty()) continue;
      std::string pattern;
      for (const std::string& name : flag.names) pattern += core::cat(pattern.empty() ? "" : " | ", verb, ":", name);
      out += core::cat("    ", pattern, ") words=\"", joined(flag.choices), "\" ;;\n");
    }
  }
  return out;
}

std::string bash(const CommandReference& program) {
  std::string verbs, flags, choices = bash_choices(program, "");
  for (const CommandReference& verb : program.verbs) {
    verbs += (verbs.empty() ? "" : " ") + verb.name;
    flags += core::cat("    ", verb.name, ") flags=\"", flag_words(verb), "\" ;;\n");
    choices += bash_choices(verb, verb.name);
  }
  const std::string& name = program.name;
  std::string out =
      core::cat("# Completion of ", name, " for bash, as ", name, " --completion bash prints it.\n_", name, "() {\n");
  out +=
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb= words= flags=\n"
      "  if [[ $current == = ]]; then\n    current=\n"
      "  elif [[ $before == = ]]; then\n    before=${COMP_WORDS[COMP_CWORD - 2]}\n  fi\n";
  if (program.verbs.empty()) {
    out += core::cat("  flags=\"", flag_words(program), "\"\n");
  } else {
    out += core::cat("  if ((COMP_CWORD == 1)); then\n    flags=\"", flag_words(program), "\"\n    words=\"", verbs,
                     "\"\n  else\n    verb=${COMP_WORDS[1]}\n    [[ $verb != -* ]] || verb=\n  fi\n  case $verb in\n",
                     flags, "  esac\n");
  }
  if (!choices.empty()) out += core::cat("  case $verb:$before in\n", choices, "  esac\n");
  out += core::cat(
      "  [[ $current != -* ]] || words=$flags\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n}\ncomplete -o bashdefault -o default -F _",
      name, " ", name, "\n");
  return out;
}

// For single quotes in zsh, within _arguments' own quoting of brackets and colons.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '\n') {
      out += ' ';
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

bool names_files(const std::string& value) { return value.find("TEXT") == 0; }

// Specifications of _arguments, one a line.
std::string zsh_flags(const CommandReference& command, std::string_view indent) {
  std::string out;
  for (const FlagGroup& group : command.groups) {
    for (const FlagReference& flag : group.flags) {
      std::string action;
      if (!flag.value.empty()) {
        action = core::cat(":", zsh_text(flag.value), ":");
        if (!flag.choices.empty()) {
          action += core::cat("(", joined(flag.choices), ")");
        } else if (names_files(flag.value)) {
          action += "_files";
        }
      }
      for (const std::string& name : flag.names)
        out += core::cat(indent, "'", name, "[", zsh_text(flag.help), "]", action, "' \\\n");
    }
  }
  return core::cat(out, indent, "'*:file:_files'\n");
}

std::string zsh(const CommandReference& program) {
  const std::string& name = program.name;
  std::string out = core::cat("#compdef ", name, "\n# Completion of ", name, " for zsh, as ", name,
                              " --completion zsh prints it.\n_", name, "() {\n");
  if (program.verbs.empty()) {
    out += "  _arguments \\\n" + zsh_flags(program, "    ");
  } else {
    out += "  local -a verbs=(\n";
    for (const CommandReference& verb : program.verbs)
      out += core::cat("    '", verb.name, ":", zsh_text(verb.summary), "'\n");
    out += "  )\n  if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n    _describe verb verbs\n    return\n  fi\n";
    out += "  if ((CURRENT == 2)); then\n    _arguments \\\n" + zsh_flags(program, "      ") + "    return\n  fi\n";
    out += "  local verb=$words[2]\n  shift words\n  ((CURRENT--))\n  case $verb in\n";
    for (const CommandReference& verb : program.verbs)
      out += core::cat("    ", verb.name, ")\n      _arguments \\\n", zsh_flags(verb, "        "), "      ;;\n");
    out += "  esac\n";
  }
  // Sourced, it registers itself; in a folder of $fpath, it is the function.
  return out + core::cat("}\nif [[ $funcstack[1] == _", name, " ]]; then\n  _", name, " \"$@\"\nelse\n  compdef _",
                         name, " ", name, "\nfi\n");
}

}  // namespace

std::string completion(const CommandReference& program, std::string_view shell) {
  if (shell == "bash") return bash(program);
  core::require_one_of("--completion", shell, {"bash", "zsh"});
  return zsh(program);
}

}  // namespace ms::tools
