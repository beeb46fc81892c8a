#include "ckpt/detail/outcome.h"

#include <algorithm>
#include <array>
#include <exception>
#include <new>

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr std::string_view kOk = "ok";
constexpr std::array kCodes = {ErrorCode::kInvalidArgument, ErrorCode::kNotFound, ErrorCode::kUnsupported,
                               ErrorCode::kCorruptData,     ErrorCode::kIo,       ErrorCode::kOutOfMemory,
                               ErrorCode::kPeerFailed,      ErrorCode::kInternal};

}  // namespace

std::string Outcome::encode() const {
  return error ? cat(core::error_code_name(error->code()), '\n', error->what()) : cat(kOk, '\n', content);
}

Outcome Outcome::decode(std::string_view text) {
  const size_t line = text.find('\n');
  const std::string_view first = text.substr(0, line);
  if (line != text.npos) {
    const std::string rest(text.substr(line + 1));
    if (first == kOk) return {rest, {}};
    const auto code = std::ranges::find(kCodes, first, core::error_code_name);
    if (code != kCodes.end()) return {{}, Error(*code, rest)};
  }
  constexpr size_t kShown = 40;
  throw Error(ErrorCode::kCorruptData,
              cat("the outcome of a save begins with \"", first.substr(0, kShown),
                  "\"; expected a line with ok or the kind of an error. Was it cut off by a full disk?"));
}

Outcome detail::outcome_of_text(const std::function<std::string()>& body) {
  try {
    return {body(), {}};
  } catch (const Error& e) {
    return {{}, e};
  } catch (const std::bad_alloc&) {
    return {{}, Error(ErrorCode::kOutOfMemory, "out of memory while writing a checkpoint")};
  } catch (const std::exception& e) {
    return {{}, Error(ErrorCode::kInternal, e.what())};
  }
}

}  // namespace ms::ckpt
