#include "tools/msckpt/common.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

#include "ckpt/inspect.h"
#include "core/comm/agree.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/log.h"
#include "core/path_list.h"
#include "core/signals.h"
#include "tools/guard.h"

namespace ms::tools::msckpt {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

CLI::App* add_command(CLI::App& app, const char* name, const char* help, bool& as_json) {
  CLI::App* verb = app.add_subcommand(name, help);
  verb->add_flag("--json", as_json, "Print JSON, schema msckpt/1");
  return verb;
}

void add_paths(CLI::App& verb, std::vector<std::string>& paths, const char* help) {
  verb.add_option("path", paths, help)->required();
}

void add_load_dir(CLI::App& verb, std::string& load_dir) {
  verb.add_option(
          "--load-dir", load_dir,
          "Checkpoint to read: a root, of which the newest checkpoint is read, or the folder of one checkpoint; "
          "- reads the path from stdin")
      ->required();
}

void add_drop_optimizer(CLI::App& verb, bool& drop_optimizer) {
  verb.add_flag("--drop-optimizer", drop_optimizer, "Drop master weights and moments");
}

void add_by_recorded_hashes(CLI::App& verb, bool& by_recorded_hashes) {
  verb.add_flag(
      "--by-recorded-hashes", by_recorded_hashes,
      "Compare recorded hashes instead of data, for tensors of which both sides have them (native checkpoints do): "
      "fast, but does not detect data that was damaged after it was written");
}

int default_threads() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)); }

void add_threads(CLI::App& verb, int& threads) {
  verb.add_option(
          "--threads", threads,
          "Threads for reading and writing, all processes of a machine together (default: its cores, at most 16)")
      ->check(CLI::Range(1, 256));
}

void agree(const Process& process, const std::function<void()>& body) {
  if (process.team == nullptr) return body();
  core::collectively(*process.team, "msckpt", body);
}

std::vector<std::string> agreed_list(const Process& process, const std::function<std::vector<std::string>()>& list) {
  std::vector<std::string> items;
  agree(process, [&] {
    if (process.prints()) items = list();
  });
  if (process.team == nullptr) return items;
  return json::parse(process.team->bcast_string(json(items).dump(), 0)).get<std::vector<std::string>>();
}

std::vector<std::string> input_paths(const std::vector<std::string>& given) {
  return core::expand_path_list(given, std::cin);
}

std::string single_path(const Process& process, const std::string& given, const char* flag) {
  if (given.empty()) {  // an unset shell variable: exit 0 would look like success
    throw Error(ErrorCode::kInvalidArgument, cat(flag, " is empty: give a file or folder, or - for stdin"));
  }
  const auto paths = agreed_list(process, [&] { return input_paths({given}); });
  if (paths.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, cat(flag, " -: expected one path, but stdin has ", paths.size()));
  }
  return paths.empty() ? "" : paths.front();
}

void print_json(const json& document) { print(core::dump_json(document) + "\n"); }

json differences_json(const std::vector<ckpt::Difference>& differences) {
  json list = json::array();
  for (const ckpt::Difference& difference : differences) {
    list.push_back(
        {{"tensor", difference.tensor}, {"role", core::role_name(difference.role)}, {"text", difference.text}});
  }
  return list;
}

bool interrupted() { return core::termination_signal() != 0; }

std::function<void(int64_t, int64_t)> progress_line(const std::string& what) {
  using Clock = std::chrono::steady_clock;
  return [what, start = Clock::now(), last = Clock::time_point()](int64_t done, int64_t total) mutable {
    const auto now = Clock::now();
    if (done < total && now - last < std::chrono::milliseconds(100)) return;
    last = now;
    const double seconds = std::chrono::duration<double>(now - start).count();
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    const double left = rate > 0 ? static_cast<double>(total - done) / rate : 0;
    core::log_progress(done >= total ? ""
                                     : cat(what, ": ", ckpt::bytes_text(done), " of ", ckpt::bytes_text(total), ", ",
                                           ckpt::bytes_text(static_cast<int64_t>(rate)), "/s, ",
                                           static_cast<int64_t>(left + 0.5), " s left"));
  };
}

}  // namespace ms::tools::msckpt
