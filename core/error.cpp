#include "core/error.h"

namespace ms::core {

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
      return 2;
    case ErrorCode::kCorruptData:
      return 3;
    case ErrorCode::kIo:
    case ErrorCode::kOutOfMemory:
      return 4;
    case ErrorCode::kPeerFailed:
      return 5;
    case ErrorCode::kInternal:
      return 1;
  }
  return 1;
}

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCorruptData:
      return "corrupt data";
    case ErrorCode::kIo:
      return "input/output";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kPeerFailed:
      return "peer failed";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

Error Error::within(std::string_view context) const { return Error(code_, cat(context, ": ", text_)); }

void fail_check(const char* file, int line, const char* condition, const std::string& text) {
  throw Error(ErrorCode::kInternal, cat("internal error at ", file, ":", line, ": ", condition,
                                        text.empty() ? "" : ": ", text, ". Please report it."));
}

}  // namespace ms::core
