#include <algorithm>
#include <cctype>
#include <string>

#include "core/error.h"
#include "tools/command_reference.h"

namespace ms::tools {
namespace {

// Text for roff: its control characters as escapes, and characters that it would print as typographic ones as ASCII.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      case '.':
        out += out.empty() || out.back() == '\n' ? "\\&." : ".";
        break;  // else a request
      default:
        out += c;
    }
  }
  return out;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// "\fB--load-dir\fR, \fB--load\fR \fITEXT\fR" and the paragraph below it.
std::string entry(const FlagReference& flag, std::string_view font) {
  std::string names;
  for (const std::string& name : flag.names) names += core::cat(names.empty() ? "" : ", ", font, roff(name), "\\fR");
  if (!flag.value.empty()) names += core::cat(" \\fI", roff(flag.value), "\\fR");
  std::string text = roff(flag.help);
  if (!flag.choices.empty()) {
    std::string choices;
    for (const std::string& choice : flag.choices) choices += (choices.empty() ? "" : ", ") + roff(choice);
    text += core::cat(text.empty() ? "" : "\n.br\n", "One of: ", choices);
  }
  return core::cat(".TP\n", names, "\n", text, "\n");
}

std::string entries(const CommandReference& command, bool with_headings) {
  std::string out;
  for (const FlagReference& argument : command.args) out += entry(argument, "\\fI");
  for (const FlagGroup& group : command.groups) {
    if (with_headings) {
      out += core::cat(".SS \"", roff(group.heading), "\"\n");
    } else if (group.heading != "Options") {
      out += core::cat(".PP\n", roff(group.heading), ":\n");
    }
    if (!group.introduction.empty()) out += core::cat(".PP\n", roff(group.introduction), "\n");
    for (const FlagReference& flag : group.flags) out += entry(flag, "\\fB");
  }
  return out;
}

constexpr std::string_view kExitStatus = R"(.SH "EXIT STATUS"
.TP
0
success
.TP
1
a bug of the program
.TP
2
the command line or the configuration
.TP
3
a file contradicts its format
.TP
4
the machine: disk, memory
.TP
5
a rank that no longer answers
.TP
10
nothing failed and the answer is no
.TP
128 + n
ended by signal n
)";

}  // namespace

std::string man_page(const CommandReference& program) {
  const std::string name = roff(program.name);
  std::string out = core::cat(".TH ", upper(program.name), " 1 \"\" \"msuite ", MS_VERSION, "\" \"User Commands\"\n");
  // A description of several lines begins with the sentence that NAME wants; apropos cuts it there.
  const std::string summary = program.summary.substr(0, program.summary.find('\n'));
  const std::string prefix = program.name + ": ";
  out += core::cat(
      ".SH NAME\n", name, " \\- ", roff(summary.rfind(prefix, 0) == 0 ? summary.substr(prefix.size()) : summary),
      "\n.SH SYNOPSIS\n\\fB", name, program.verbs.empty() ? "\\fR" : "\\fR \\fIVERB\\fR", " [\\fIOPTIONS\\fR]\n");
  if (!program.verbs.empty()) {
    out += core::cat(".SH DESCRIPTION\nResults go to standard output, the log to standard error. \\fB", name,
                     "\\fR \\fIVERB\\fR \\fB\\-\\-help\\fR prints the options of one verb.\n");
  }
  out += ".SH OPTIONS\n" + entries(program, program.verbs.empty());
  if (!program.verbs.empty()) out += ".SH VERBS\n";
  for (const CommandReference& verb : program.verbs) {
    out += core::cat(".SS \"", name, " ", roff(verb.name), "\"\n", roff(verb.summary), "\n", entries(verb, false));
    if (!verb.footer.empty()) out += core::cat(".PP\n", roff(verb.footer), "\n");
  }
  if (!program.footer.empty()) out += core::cat(".SH EXAMPLES\n.nf\n", roff(program.footer), "\n.fi\n");
  out += kExitStatus;
  out += ".SH \"SEE ALSO\"\n";
  std::string others;
  for (const std::string_view other : {"mstrain", "msckpt", "msprof", "msdata"}) {
    if (other != program.name) others += core::cat(others.empty() ? "" : ", ", "\\fB", other, "\\fR(1)");
  }
  return out + others + "\n";
}

}  // namespace ms::tools
