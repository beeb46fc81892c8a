#include "core/comm/process_home.h"

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "core/error.h"

namespace ms::core {
namespace {

// The fields of /proc/PID/stat after the name, which may contain any character: the first is the state, "R".
std::string stat_fields(int64_t pid) {
  std::ifstream stat(cat("/proc/", pid, "/stat"));
  std::string line;
  if (!stat || !std::getline(stat, line)) return "";
  const size_t name_end = line.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= line.size() ? "" : line.substr(name_end + 2);
}

int64_t start_of(const std::string& fields) {
  constexpr int kStartTime = 20;  // field 22 of the line
  std::istringstream words(fields);
  std::string word;
  for (int i = 0; i < kStartTime && words >> word; ++i) {
  }
  return words ? std::strtoll(word.c_str(), nullptr, 10) : 0;
}

}  // namespace

flight::Home own_home() {
  flight::Home home{};
  ::gethostname(home.host, sizeof home.host - 1);
  std::ifstream("/proc/sys/kernel/random/boot_id").get(home.boot, sizeof home.boot);
  struct stat pids {};
  if (home.boot[0] != '\0' && ::stat("/proc/self/ns/pid", &pids) == 0) {
    home.pids[0] = pids.st_dev;
    home.pids[1] = pids.st_ino;
  }
  return home;
}

bool see_each_other(const flight::Home& a, const flight::Home& b) {
  return a.pids[1] != 0 && a.pids[0] == b.pids[0] && a.pids[1] == b.pids[1] &&
         std::strncmp(a.boot, b.boot, sizeof a.boot) == 0 && std::strncmp(a.host, b.host, sizeof a.host) == 0;
}

ProcessState process_state(int64_t pid, int64_t started) {
  const std::string fields = stat_fields(pid);
  if (fields.empty()) return ::kill(static_cast<pid_t>(pid), 0) == 0 ? ProcessState::kUnknown : ProcessState::kDead;
  if (started != 0 && start_of(fields) != started) return ProcessState::kDead;  // another process has its id
  switch (fields.front()) {
    case 'Z':
    case 'X':
      return ProcessState::kDead;
    case 'T':
    case 't':
      return ProcessState::kStopped;
    default:
      return ProcessState::kRuns;
  }
}

int64_t process_start(int64_t pid) { return start_of(stat_fields(pid)); }

}  // namespace ms::core
