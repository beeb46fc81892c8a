#include "core/trace/perf_counters.h"

#include <linux/perf_event.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "core/error.h"

namespace ms::core::trace {
namespace {

std::vector<int> thread_ids() {
  std::vector<int> ids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    ids.push_back(std::atoi(entry.path().filename().c_str()));
  }
  return ids;
}

int open_counter(uint64_t config, int thread) {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.size = sizeof(attributes);
  attributes.config = config;
  attributes.inherit = 1;
  attributes.exclude_kernel = 1;  // perf_event_paranoid 2 still allows this
  attributes.exclude_hv = 1;
  return static_cast<int>(::syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

rusage usage() {
  rusage now{};
  ::getrusage(RUSAGE_SELF, &now);
  return now;
}

}  // namespace

PerfCounters::PerfCounters() {
  const struct {
    const char* name;
    uint64_t config;
  } events[] = {{"cycles", PERF_COUNT_HW_CPU_CYCLES}, {"LLC misses", PERF_COUNT_HW_CACHE_MISSES}};
  const std::vector<int> threads = thread_ids();
  for (const auto& event : events) {
    Series series{event.name, {}};
    int why = 0;
    for (const int thread : threads) {
      const int file = open_counter(event.config, thread);
      if (file >= 0) {
        series.files.push_back(file);
      } else if (errno != ESRCH) {  // the thread may have ended meanwhile
        why = errno;
      }
    }
    if (why != 0 || series.files.empty()) {
      for (const int file : series.files) ::close(file);
      notice_ +=
          cat(notice_.empty() ? "not counted, the kernel refuses: " : ", ", event.name, " (", std::strerror(why), ")");
    } else {
      hardware_.push_back(std::move(series));
    }
  }
  const rusage start = usage();
  page_faults_at_start_ = start.ru_minflt + start.ru_majflt;
  context_switches_at_start_ = start.ru_nvcsw + start.ru_nivcsw;
}

PerfCounters::~PerfCounters() {
  for (const Series& series : hardware_) {
    for (const int file : series.files) ::close(file);
  }
}

void PerfCounters::sample(const std::function<void(std::string_view, double)>& emit) const {
  for (const Series& series : hardware_) {
    uint64_t sum = 0;
    for (const int file : series.files) {
      uint64_t value = 0;
      if (::read(file, &value, sizeof(value)) == sizeof(value)) sum += value;
    }
    emit(series.name, static_cast<double>(sum));
  }
  const rusage now = usage();
  emit("page faults", static_cast<double>(now.ru_minflt + now.ru_majflt - page_faults_at_start_));
  emit("context switches", static_cast<double>(now.ru_nvcsw + now.ru_nivcsw - context_switches_at_start_));
  for (const int thread : thread_ids()) {
    // schedstat: time on the CPU and time waiting for one (both ns), number of timeslices.
    const std::unique_ptr<FILE, int (*)(FILE*)> file(
        std::fopen(cat("/proc/self/task/", thread, "/schedstat").c_str(), "re"), std::fclose);
    unsigned long long running = 0, waiting = 0;
    if (file != nullptr && std::fscanf(file.get(), "%llu %llu", &running, &waiting) == 2) {
      emit(cat("cpu ns ", thread), static_cast<double>(running));
      emit(cat("runqueue wait ns ", thread), static_cast<double>(waiting));
    }
  }
}

}  // namespace ms::core::trace
