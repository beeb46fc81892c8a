#include "kernels/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace ms::kernels {

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kScalar:
      break;
  }
  return "scalar";
}

std::optional<Isa> parse_isa(std::string_view name) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (name == isa_name(isa)) return isa;
  }
  return std::nullopt;
}

bool cpu_supports(Isa isa) {
  if (isa == Isa::kScalar) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();  // asks XGETBV too: a feature whose registers the system does not save is not reported
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;  // F16C by hand: Clang 14 does not know the word
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  if (isa == Isa::kAvx2) return avx2;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return isa == Isa::kAvx512 ? avx512 : avx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

Isa choose_isa(std::string_view forced) {
  if (!forced.empty()) {
    const auto isa = parse_isa(forced);
    if (!isa) {
      throw std::invalid_argument("MS_FORCE_ISA is '" + std::string(forced) +
                                  "'; it may be scalar, avx2, avx512 or avx512_bf16");
    }
    if (!cpu_supports(*isa)) {
      throw std::invalid_argument("MS_FORCE_ISA is '" + std::string(forced) +
                                  "', which this CPU lacks; unset it to use the best there is");
    }
    return *isa;
  }
  for (const Isa isa : {Isa::kAvx512Bf16, Isa::kAvx512, Isa::kAvx2}) {
    if (cpu_supports(isa)) return isa;
  }
  return Isa::kScalar;
}

Isa active_isa() {
  static const Isa isa = [] {
    const char* forced = std::getenv("MS_FORCE_ISA");
    return choose_isa(forced == nullptr ? "" : forced);
  }();
  return isa;
}

}  // namespace ms::kernels
