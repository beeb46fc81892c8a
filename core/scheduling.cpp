#include "core/scheduling.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/error.h"
#include "core/log.h"

namespace ms::core {
namespace {

[[noreturn]] void refuse(std::string_view text) {
  throw Error(ErrorCode::kInvalidArgument, cat("\"", text, "\" is not a list of CPUs such as 0-3,7"));
}

int parse_cpu(std::string_view number, std::string_view text) {
  int cpu = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), cpu);
  if (error != std::errc() || end != number.data() + number.size() || cpu < 0 || cpu >= CPU_SETSIZE) refuse(text);
  return cpu;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  for (std::string_view rest = text; !text.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view range = rest.substr(0, comma);
    const size_t dash = range.find('-');
    const int first = parse_cpu(range.substr(0, dash), text);
    const int last = dash == std::string_view::npos ? first : parse_cpu(range.substr(dash + 1), text);
    if (last < first) refuse(text);
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  return cpus;
}

void schedule_this_thread(int nice, const std::vector<int>& cpus) {
  // Batch scheduling gives the thread the same share of a core, but it never preempts a thread that woke it.
  const sched_param no_priority{};
  if (::sched_setscheduler(0, SCHED_BATCH, &no_priority) != 0) {
    log_debug("core.scheduling", cat("cannot schedule a thread as batch work: ", std::strerror(errno)));
  }
  if (nice != 0) {
    // On Linux, niceness is per thread.
    const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
    errno = 0;
    const int now = ::getpriority(PRIO_PROCESS, thread);
    if (errno != 0 || ::setpriority(PRIO_PROCESS, thread, now + nice) != 0) {
      log_warning("core.scheduling", cat("cannot raise the niceness by ", nice, ": ", std::strerror(errno)));
    }
  }
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) {
    log_warning("core.scheduling", cat("cannot bind a thread to the given CPUs: ", std::strerror(errno)));
  }
}

}  // namespace ms::core
