// The log on stderr: one line per fact.
//
//   I 12:03:44.120 r0 train.step] iteration 10/500 | lm loss: 7.3121
//
// stdout is for results. Only tools/ and core/log.cpp write to either. Only rank 0 logs unless set_log_all_ranks. The
// sink is one of the suite's two globals (the other is the detected instruction set).
#pragma once

#include <string_view>

namespace ms::core {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Parses debug|info|warning|error; throws kInvalidArgument otherwise.
LogLevel parse_log_level(std::string_view text);

void set_log_level(LogLevel level);
// rank: this process's, stored per thread (tests run ranks as threads). all_ranks: whether ranks other than 0 log.
void set_log_rank(int rank, bool all_ranks);
int log_rank();
bool log_enabled(LogLevel level);  // errors are logged on every rank

// Writes one line. `where` is "module.topic". Thread-safe: each line is one write(2). Control characters in text become
// spaces, so that text quoted from a file stays one line that a terminal can show; warnings and errors have no word of
// more than 400 bytes (without_long_words).
void log(LogLevel level, std::string_view where, std::string_view text);

inline void log_debug(std::string_view where, std::string_view text) { log(LogLevel::kDebug, where, text); }
inline void log_info(std::string_view where, std::string_view text) { log(LogLevel::kInfo, where, text); }
inline void log_warning(std::string_view where, std::string_view text) { log(LogLevel::kWarning, where, text); }
inline void log_error(std::string_view where, std::string_view text) { log(LogLevel::kError, where, text); }

// A progress line on stderr that is redrawn in place, if stderr is a terminal and rank 0 logs; otherwise does nothing.
// An empty text clears it. log() clears it before writing its line.
void log_progress(std::string_view text);

}  // namespace ms::core
