#include "profile/record/launch.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/signals.h"
#include "profile/record/variables.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

std::string list_of(const std::vector<int64_t>& ranks, std::string_view all) {
  std::string text;
  for (const int64_t rank : ranks) text += cat(text.empty() ? "" : ",", rank);
  return ranks.empty() ? std::string(all) : text;
}

bool is_launcher_of_open_mpi(const std::string& word) {
  const std::string name = std::filesystem::path(word).filename().string();
  return name == "mpirun" || name == "mpiexec" || name == "orterun" || name == "prterun";
}

}  // namespace

RecordedCommand recorded_command(const RecordOptions& options, const std::filesystem::path& library) {
  RecordedCommand out{options.command, {}};
  const auto mstrain = std::find_if(out.words.begin(), out.words.end(), [](const std::string& word) {
    return std::filesystem::path(word).filename() == "mstrain";
  });
  const bool steps = options.last_step >= options.first_step;
  const std::string folder = std::filesystem::absolute(options.folder).string();
  if (mstrain != out.words.end()) {
    std::vector<std::string> flags = {"--profile", "--profile-save-path", folder, "--profile-ranks"};
    if (options.ranks.empty()) flags.emplace_back("-1");
    for (const int64_t rank : options.ranks) flags.push_back(std::to_string(rank));
    if (!options.level.empty()) flags.insert(flags.end(), {"--profile-level", options.level});
    if (steps) {
      flags.insert(flags.end(), {"--profile-step-start", std::to_string(options.first_step), "--profile-step-end",
                                 std::to_string(options.last_step + 1)});
    }
    out.words.insert(mstrain + 1, flags.begin(), flags.end());
    return out;
  }
  if (steps) {
    throw Error(ErrorCode::kInvalidArgument,
                "--step: only mstrain records steps; of other programs the whole run is recorded");
  }
  if (options.level == "level2") {
    throw Error(ErrorCode::kInvalidArgument,
                "--level level2: only mstrain has level2; other programs have level0 and level1");
  }
  const char* const before = std::getenv("LD_PRELOAD");
  out.environment = {{"LD_PRELOAD", cat(library.string(), before != nullptr && *before != '\0' ? ":" : "",
                                        before != nullptr ? before : "")},
                     {kPathVariable, folder},
                     {kRanksVariable, list_of(options.ranks, "")},
                     {kLevelVariable, options.level.empty() ? "level1" : options.level}};
  if (!is_launcher_of_open_mpi(out.words.front())) return out;
  const auto variables = std::exchange(out.environment, {});  // the launcher itself is not recorded
  // Open MPI refuses -x if this list is already in use.
  constexpr const char* kList = "OMPI_MCA_mca_base_env_list";
  if (const char* const given = std::getenv(kList)) {
    std::string list = given;
    for (const auto& [name, value] : variables) list += cat(";", name, "=", value);
    out.environment = {{kList, std::move(list)}};
    return out;
  }
  std::vector<std::string> flags;
  for (const auto& [name, value] : variables) flags.insert(flags.end(), {"-x", cat(name, "=", value)});
  out.words.insert(out.words.begin() + 1, flags.begin(), flags.end());
  return out;
}

int run_recorded(const RecordedCommand& command) {
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t ignored_here;
  sigemptyset(&ignored_here);
  sigaddset(&ignored_here, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &ignored_here);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, words[0], nullptr, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  for (const auto& [name, value] : command.environment) ::unsetenv(name.c_str());
  if (error != 0) {
    throw Error(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                cat("cannot start ", command.words.front(), ": ", std::strerror(error)));
  }
  constexpr int kLookMs = 50;  // waitpid is restarted after signals, so poll
  int status = 0;
  bool passed_on = false;
  for (pid_t ended = 0; ended != child;) {
    ended = ::waitpid(child, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) throw Error(ErrorCode::kIo, cat("waitpid: ", std::strerror(errno)));
    if (ended == child) break;
    const int signal = core::termination_signal();
    if (signal != 0 && !passed_on) ::kill(child, signal);
    passed_on |= signal != 0;
    ::poll(nullptr, 0, kLookMs);
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace ms::profile
