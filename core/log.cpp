#include "core/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>

#include "core/error.h"
#include "core/printable.h"

namespace ms::core {
namespace {

struct Sink {
  std::mutex mutex;
  std::atomic<LogLevel> level{LogLevel::kInfo};
  std::atomic<bool> all_ranks{false};
  bool progress_shown = false;
  std::string line;  // output buffer: keeps its capacity, so that a line does not allocate
};

Sink& sink() {
  static Sink instance;
  return instance;
}

constexpr std::string_view kClearLine = "\r\033[K";

// Per thread, because tests run ranks as threads of one process; threads that a rank starts log as rank 0 unless set.
thread_local int this_rank = 0;

void write_all(const std::string& line) {
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (n <= 0) return;  // a closed stderr must not stop the program
    done += static_cast<size_t>(n);
  }
}

bool speaks() { return this_rank == 0 || sink().all_ranks.load(std::memory_order_relaxed); }

}  // namespace

LogLevel parse_log_level(std::string_view text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning") return LogLevel::kWarning;
  require_one_of("--log-level", text, {"debug", "info", "warning", "error"});
  return LogLevel::kError;
}

void set_log_level(LogLevel level) { sink().level = level; }

void set_log_rank(int rank, bool all_ranks) {
  this_rank = rank;
  sink().all_ranks = all_ranks;
}

int log_rank() { return this_rank; }

bool log_enabled(LogLevel level) {
  return level >= sink().level.load(std::memory_order_relaxed) && (speaks() || level == LogLevel::kError);
}

void log(LogLevel level, std::string_view where, std::string_view text) {
  if (!log_enabled(level)) return;
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char head[64];
  std::snprintf(head, sizeof head, "%c %02d:%02d:%02d.%03d r%d ", "DIWE"[static_cast<int>(level)], local.tm_hour,
                local.tm_min, local.tm_sec, static_cast<int>(millis), this_rank);
  std::lock_guard lock(sink().mutex);
  std::string& line = sink().line;
  line.assign(head).append(where).append("] ");
  if (level >= LogLevel::kWarning) {
    line += without_long_words(text);
  } else {
    line += text;
  }
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  line += '\n';
  if (sink().progress_shown) {
    line.insert(0, kClearLine);
    sink().progress_shown = false;
  }
  write_all(line);
}

void log_progress(std::string_view text) {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  if (!terminal || !speaks()) return;
  std::lock_guard lock(sink().mutex);
  write_all(sink().line.assign(kClearLine).append(text));
  sink().progress_shown = !text.empty();
}

}  // namespace ms::core
