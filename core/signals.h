// Signals, as flags that work can look at where it is safe: SIGTERM, SIGINT and SIGHUP ask to end, another may ask for
// something else.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace ms::core {

// Installs handlers that remember the first of SIGTERM, SIGINT, SIGHUP; a second SIGINT, more than 0.2 s behind it,
// ends the process at once. Also ignores SIGPIPE: a closed stdout shows as a failed write.
void install_termination_handlers();

// Remembers this signal too.
void watch_termination_signal(int signal);
// "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1" or "SIGUSR2" as a number; 0 for anything else.
int parse_signal(std::string_view name);

// 0, or the signal that asked to end.
int termination_signal();
// Seconds since it came; 0 when none has.
double seconds_since_termination();

// Lets this signal be counted, no more. Of one signal in the program.
void count_signal(int signal);
int64_t counted_signals();

// While it lives, the handlers of this file run on a stack of their own when they interrupt this thread. Every thread
// that runs kernels has one: oneDNN's generated products (2.6) keep pointers further below the stack pointer than the
// kernel spares, and a handler's frame in their place made them write anywhere.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> memory_;
  stack_t before_{};
};

}  // namespace ms::core
