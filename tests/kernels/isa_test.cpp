#include "kernels/isa.h"

#include <gmock/gmock.h>

#include <stdexcept>

#include "tests/kernels/forced_isa.h"

namespace ms::kernels {
namespace {

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};

TEST(Isa, ParseInvertsName) {
  for (const Isa isa : kAll) EXPECT_EQ(parse_isa(isa_name(isa)), isa);
  EXPECT_FALSE(parse_isa("sse2"));
  EXPECT_FALSE(parse_isa(""));
}

TEST(Isa, ChoosesTheBestSupported) {
  const Isa chosen = choose_isa("");
  EXPECT_TRUE(cpu_supports(chosen));
  for (const Isa isa : kAll) EXPECT_EQ(cpu_supports(isa), isa <= chosen);
}

TEST(Isa, RejectsUnknownAndUnsupportedNames) {
  EXPECT_EQ(choose_isa("scalar"), Isa::kScalar);
  try {
    choose_isa("neon");
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'neon'"));
  }
  for (const Isa isa : kAll) {
    if (cpu_supports(isa)) {
      EXPECT_EQ(choose_isa(isa_name(isa)), isa);
    } else {
      EXPECT_THROW(choose_isa(isa_name(isa)), std::invalid_argument);
    }
  }
}

}  // namespace
}  // namespace ms::kernels
