#include "core/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "core/error.h"

namespace ms::core {
namespace {

// timeout(1) signals the process and its group; a launcher signals children that the terminal signals too.
constexpr int64_t kSameSignalNs = 200'000'000;

// A signal handler can only report through globals, which is the one reason for these.
std::atomic<int> first_signal{0};
std::atomic<int64_t> signal_time_ns{0};
std::atomic<int64_t> counted{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void remember(int signal) {
  int expected = 0;
  if (first_signal.compare_exchange_strong(expected, signal)) {
    signal_time_ns.store(monotonic_ns());
    return;
  }
  const int64_t first_at = signal_time_ns.load();
  const bool is_another = first_at != 0 && monotonic_ns() - first_at > kSameSignalNs;
  if (signal == SIGINT && is_another) ::_exit(128 + signal);
}

void install(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void install_termination_handlers() {
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) watch_termination_signal(signal);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // beyond a limit of the file size, a write fails like any other
}

void watch_termination_signal(int signal) { install(signal, remember); }

int parse_signal(std::string_view name) {
  constexpr std::pair<std::string_view, int> kNames[] = {
      {"SIGTERM", SIGTERM}, {"SIGINT", SIGINT}, {"SIGHUP", SIGHUP}, {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}};
  for (const auto& [known, signal] : kNames) {
    if (name == known) return signal;
  }
  return 0;
}

int termination_signal() { return first_signal.load(std::memory_order_relaxed); }

double seconds_since_termination() {
  const int64_t at = signal_time_ns.load();
  return at == 0 ? 0.0 : static_cast<double>(monotonic_ns() - at) * 1e-9;
}

void count_signal(int signal) {
  install(signal, [](int) { counted.fetch_add(1, std::memory_order_relaxed); });
}

SignalStack::SignalStack() {
  stack_t mine{};
  mine.ss_size = static_cast<size_t>(::sysconf(_SC_SIGSTKSZ)) + 16384;  // room for the saved registers and a handler
  memory_ = std::make_unique_for_overwrite<std::byte[]>(mine.ss_size);
  mine.ss_sp = memory_.get();
  MS_CHECK(::sigaltstack(&mine, &before_) == 0, "sigaltstack: ", std::strerror(errno));
}

SignalStack::~SignalStack() { ::sigaltstack(&before_, nullptr); }

int64_t counted_signals() { return counted.load(std::memory_order_relaxed); }

}  // namespace ms::core
