// How the tools with verbs read their command line (CLI11): help and version go to stdout; an error is one line that
// ends in "See <program> <verb> --help", and exit code 2. Missing values and misspelt names: core/flag_syntax.h.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ms::tools {

// Adds --version and parses args (guard.h, arguments). False: help or version was printed, there is nothing more to do.
// Throws kInvalidArgument, for the environment too (guard.h, check_instruction_set).
bool parse(CLI::App& app, const std::vector<std::string>& args);

}  // namespace ms::tools
