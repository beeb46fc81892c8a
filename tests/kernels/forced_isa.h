// For tests declared with ISAS: skips the program if the CPU does not support what MS_FORCE_ISA names, and checks that
// the forced instruction set is the active one. Include once, in the test's .cpp.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/isa.h"

namespace ms::kernels {

inline const char* forced_isa() {
  const char* name = std::getenv("MS_FORCE_ISA");
  return name == nullptr ? "" : name;
}

[[maybe_unused]] static const bool kSkipsWhatTheCpuLacks = [] {
  const auto isa = parse_isa(forced_isa());
  if (isa && !cpu_supports(*isa)) {
    std::printf("SKIPPED: CPU lacks %s\n", forced_isa());
    std::fflush(stdout);
    std::_Exit(77);
  }
  return true;
}();

TEST(ForcedIsa, IsTheActiveOne) {
  if (*forced_isa() == '\0') GTEST_SKIP() << "MS_FORCE_ISA is not set";
  EXPECT_EQ(isa_name(active_isa()), forced_isa());
}

}  // namespace ms::kernels
