// Captures what an action throws, for tests of errors.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/error.h"

namespace ms::test {

struct Thrown {
  core::ErrorCode code = core::ErrorCode::kInternal;
  std::string text;
};

// If nothing was thrown, fails the test and returns kInternal without a text.
inline Thrown thrown_by(const std::function<void()>& action) {
  try {
    action();
  } catch (const core::Error& error) {
    return {error.code(), error.what()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline core::ErrorCode code_of(const std::function<void()>& action) { return thrown_by(action).code; }

}  // namespace ms::test
