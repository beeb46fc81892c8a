// Shared by the fuzz targets. Each tests/fuzz/<reader>_fuzz.cpp passes the input bytes to one reader:
//
//   extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
//
// Linked with replay.cpp it is a test (ctest fuzz.<reader>); with clang's libFuzzer (-DMS_FUZZ=ON) it searches for
// failures.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/log.h"
#include "tests/support/temporary_folder.h"

namespace ms::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Runs a reader as a program would. A file may be refused with an error code that blames the file; any other exception
// ends the process and fails the test.
template <class Read>
void read_or_refuse(const Read& read) noexcept {
  try {
    read();
  } catch (const core::Error& e) {
    using core::ErrorCode;
    const bool blames_the_file = e.code() == ErrorCode::kCorruptData || e.code() == ErrorCode::kUnsupported ||
                                 e.code() == ErrorCode::kInvalidArgument || e.code() == ErrorCode::kNotFound;
    if (blames_the_file && *e.what() != '\0') return;
    std::fprintf(stderr, "refused with the wrong code: %s: %s\n", std::string(core::error_code_name(e.code())).c_str(),
                 e.what());
    std::abort();
  }
}

// Readers warn about what they leave out; thousands of such lines would hide the important one.
inline const bool quiet = (core::set_log_level(core::LogLevel::kError), true);

// Asserts a property that must hold for every input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// A folder that exists as long as the process, for readers that need paths.
inline const test::TemporaryFolder& folder() {
  static const test::TemporaryFolder kept;
  return kept;
}

}  // namespace ms::fuzz
