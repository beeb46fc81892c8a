// Termination signals, as a flag that work can look at: SIGTERM, SIGINT and SIGHUP ask, the program decides where it is
// safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace ms::core {

// Installs handlers that remember the first of SIGTERM, SIGINT, SIGHUP; a second SIGINT ends the process at once.
// Also ignores SIGPIPE: a closed stdout shows as a failed write.
void install_termination_handlers();

// Remembers this signal too.
void watch_termination_signal(int signal);
// "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1" or "SIGUSR2" as a number; 0 for anything else.
int parse_signal(std::string_view name);

// 0, or the signal that asked to end.
int termination_signal();
// Seconds since it came; 0 when none has.
double seconds_since_termination();

}  // namespace ms::core
