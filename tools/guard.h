// What all main functions share: errors become one line and the exit code of core/error.h, results are written to
// stdout by one function, and a closed pipe ends the program silently.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace ms::tools {

// argv without the program's name. In flags '_' is replaced by '-': --json_keys is --json-keys.
std::vector<std::string> arguments(int argc, char** argv);

// Throws kInvalidArgument if MS_FORCE_ISA is not an instruction set, or one that this CPU lacks (kernels/isa.h).
void check_instruction_set();

// The error with "See <command> --help" appended to its text.
core::Error see_help(const core::Error& error, std::string_view command);

// Writes text to stdout immediately. A closed pipe ends the process silently with 128 + SIGPIPE; any other failure is
// kIo.
void print(std::string_view text);

// Prints the name and the version of the suite.
void print_version(std::string_view name);

// Runs body and returns its exit code, or that of the error it threw, after printing one line to stderr under `name`.
// If a signal asked the program to end, the code is 128 + signal. when_alone: called last, with the exit code, for an
// error that other ranks cannot know of (a silent peer, an exception outside an agreed phase), so that it can end the
// job.
// may_report: asked before the line of such an error; false: another rank has reported the same failure.
int run_guarded(std::string_view name, const std::function<int()>& body,
                const std::function<void(int exit_code)>& when_alone = nullptr,
                const std::function<bool(std::string_view text)>& may_report = nullptr);

}  // namespace ms::tools
