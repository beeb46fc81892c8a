// Shared by the verbs of msckpt: paths from flags and stdin, flags with the same meaning everywhere, JSON output and
// the progress line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/diff.h"
#include "ckpt/execute.h"
#include "core/io/json.h"
#include "tools/msckpt/verb.h"

namespace ms::tools::msckpt {

// Adds the subcommand and the flag --json, which every verb has.
CLI::App* add_command(CLI::App& app, const char* name, const char* help, bool& as_json);

void add_paths(CLI::App& verb, std::vector<std::string>& paths, const char* help);
void add_load_dir(CLI::App& verb, std::string& load_dir);
void add_drop_optimizer(CLI::App& verb, bool& drop_optimizer);

void add_by_recorded_hashes(CLI::App& verb, bool& by_recorded_hashes);

// --threads: of all processes of a machine together.
int default_threads();
void add_threads(CLI::App& verb, int& threads);

// Runs `body`; with a team, an error on one process is thrown on all (core/comm/agree.h).
void agree(const Process& process, const std::function<void()>& body);

// Returns on all processes the list that `list` returns on the first one. For input that only one process has (stdin)
// or that may change between two reads (folders).
std::vector<std::string> agreed_list(const Process& process, const std::function<std::vector<std::string>()>& list);

// Expands positional arguments: "-" stands for the lines of stdin.
std::vector<std::string> input_paths(const std::vector<std::string>& given);
// The path given by a flag that may be "-". Empty if stdin is empty: the upstream command failed and printed why.
// Throws kInvalidArgument if stdin has several lines.
std::string single_path(const Process& process, const std::string& given, const char* flag);

void print_json(const nlohmann::json& document);
nlohmann::json differences_json(const std::vector<ckpt::Difference>& differences);

// True once a signal has requested the program's end.
bool interrupted();

// A progress line with rate and time left, redrawn at most ten times a second: for ExecuteOptions::progress and
// VerifyOptions::progress.
std::function<void(int64_t done, int64_t total)> progress_line(const std::string& what);

}  // namespace ms::tools::msckpt
