// A verb of msprof: a pair of files in this folder, registered in verbs.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace ms::tools::msprof {

class Verb {
 public:
  virtual ~Verb() = default;
  // Adds the subcommand and its flags, whose values are stored in this object. Called once.
  virtual CLI::App* add(CLI::App& app) = 0;
  // Runs the verb after parsing. arguments: the command line as given. Returns the exit code.
  virtual int run(const std::vector<std::string>& arguments) = 0;
};

// In the order of --help.
std::vector<std::unique_ptr<Verb>> all_verbs();

}  // namespace ms::tools::msprof
