// How the tools with verbs read their command line (CLI11): help and version are printed to stdout; an error is one
// line that ends in "See <program> <verb> --help", with exit code 2. Missing values and misspelt names:
// core/flag_syntax.h.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ms::tools {

// Adds --version, --man and --completion, and parses args (guard.h, arguments). Returns false if one of them or the
// help was printed and nothing is left to do. Throws kInvalidArgument, also for the environment (guard.h,
// check_instruction_set).
bool parse(CLI::App& app, const std::vector<std::string>& args);

// For an option whose number must be above 0.
CLI::Validator positive_number();

}  // namespace ms::tools
