// Signals as flags that code checks where it is safe to act: SIGTERM, SIGINT and SIGHUP request termination; a program
// can watch others.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace ms::core {

// Installs handlers that record the first SIGTERM, SIGINT or SIGHUP. A second SIGINT more than 0.2 s after it ends the
// process at once. Also ignores SIGPIPE and SIGXFSZ: a closed stdout, and a limit of the size of files, are seen as a
// failed write.
void install_termination_handlers();

// Records this signal as a request to terminate too.
void watch_termination_signal(int signal);
// The number of "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1" or "SIGUSR2"; 0 for anything else.
int parse_signal(std::string_view name);

// The signal that requested termination, or 0.
int termination_signal();
// Seconds since that signal came; 0 if none has.
double seconds_since_termination();

// Only counts this signal. One signal per program.
void count_signal(int signal);
int64_t counted_signals();

// While it exists, signal handlers that interrupt this thread run on a stack of their own. Every thread that runs
// kernels needs one: oneDNN's generated products (2.6) keep pointers further below the stack pointer than the kernel
// preserves; a handler's frame there overwrote them and made the products write to arbitrary addresses.
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
