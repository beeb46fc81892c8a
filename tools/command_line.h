// How the tools with verbs read their command line (CLI11): help and version go to stdout, what is wrong is one line
// and exit code 2.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ms::tools {

// Adds --version and parses args (guard.h, arguments). False: help or version was printed, there is nothing more to do.
// Throws kInvalidArgument.
bool parse(CLI::App& app, const std::vector<std::string>& args);

}  // namespace ms::tools
