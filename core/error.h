// The suite's only exception type. Its code says who must act; its text says what was being done, where, what was seen,
// what was expected, and the cure.
//
//   throw core::Error(core::ErrorCode::kCorruptData, core::cat(path, ": local_shape ", seen, " but the manifest says ",
//   want));
//
// Catch it to add context (`throw e.within("read manifest")`) or to decide, never to ignore it silently.
#pragma once

#include <exception>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace ms::core {

enum class ErrorCode {
  kInvalidArgument,  // exit 2: the command line or config; nothing has been changed
  kNotFound,         // exit 2
  kUnsupported,      // exit 2
  kCorruptData,      // exit 3: a file contradicts its format or itself
  kIo,               // exit 4: the machine
  kOutOfMemory,      // exit 4
  kPeerFailed,       // exit 5: a rank silent past --distributed-timeout-minutes
  kInternal,         // exit 1: a bug of ours; carries the source line
};

// Exit code when nothing failed and the answer is "no": msckpt diff, verify --against, msprof check.
inline constexpr int kExitAnswerIsNo = 10;

// Process exit code of an error, as in the comments of ErrorCode.
int exit_code(ErrorCode code);
std::string_view error_code_name(ErrorCode code);

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string text) : code_(code), text_(std::move(text)) {}
  ErrorCode code() const { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }
  // The same error with "context: " in front of its text.
  Error within(std::string_view context) const;

 private:
  ErrorCode code_;
  std::string text_;
};

namespace detail {
inline void append(std::ostringstream& out, const char* value) { out << value; }
inline void append(std::ostringstream& out, bool value) { out << (value ? "true" : "false"); }
template <class T>
void append(std::ostringstream& out, const T& value) {
  out << value;
}
template <class T, size_t kExtent>
void append(std::ostringstream& out, std::span<T, kExtent> values) {
  out << '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i != 0) out << ", ";
    append(out, values[i]);
  }
  out << ']';
}
template <class T>
void append(std::ostringstream& out, const std::vector<T>& values) {
  append(out, std::span(values));
}
}  // namespace detail

// Concatenates its arguments as text; vectors and spans print as [a, b, c].
template <class... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (detail::append(out, args), ...);
  return out.str();
}

[[noreturn]] void fail_check(const char* file, int line, const char* condition, const std::string& text);

}  // namespace ms::core

// Checks our own invariants: throws kInternal with the source line. Not for user data.
#define MS_CHECK(condition, ...)                                                                            \
  do {                                                                                                      \
    if (!(condition)) ::ms::core::fail_check(__FILE__, __LINE__, #condition, ::ms::core::cat(__VA_ARGS__)); \
  } while (false)
