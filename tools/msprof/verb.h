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
  virtual const char* name() const = 0;  // "critical-path"
  virtual const char* help() const = 0;  // one line, for msprof --help
  // Adds the flags to the verb's subcommand; parsing stores their values in this object. Called at most once, and only
  // if they can be on the command line or are listed.
  virtual void add(CLI::App& verb) = 0;
  // Runs the verb after parsing. arguments: the command line as given. Returns the exit code.
  virtual int run(const std::vector<std::string>& arguments) = 0;
};

// In the order of --help.
std::vector<std::unique_ptr<Verb>> all_verbs();

}  // namespace ms::tools::msprof
