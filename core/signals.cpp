#include "core/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <utility>

namespace ms::core {
namespace {

// A signal handler has no other way to tell: the one reason for these globals.
std::atomic<int> first_signal{0};
std::atomic<int64_t> signal_time_ns{0};
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
  } else if (signal == SIGINT) {
    ::_exit(128 + signal);
  }
}

}  // namespace

void install_termination_handlers() {
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) watch_termination_signal(signal);
  std::signal(SIGPIPE, SIG_IGN);
}

void watch_termination_signal(int signal) {
  struct sigaction action {};
  action.sa_handler = remember;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

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

}  // namespace ms::core
