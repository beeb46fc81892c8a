#include "kernels/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace ms::kernels {
namespace {

constexpr Isa kAll[] = {Isa::kAmx, Isa::kAvx512Bf16, Isa::kAvx512, Isa::kAvx2, Isa::kScalar};  // best first

#if defined(__x86_64__)
// Tests AMX's CPUID bits directly, because Clang 14 does not know their names. Linux must grant a process permission to
// use tiles, which add 8 KiB to each thread's state.
bool lets_us_use_amx() {
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24, kTileStates = 3U << 17;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kBf16) == 0 || (edx & kTile) == 0) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileStates) != kTileStates) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // Linux: asm/prctl.h and its state components
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
      return "amx";
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
  for (const Isa isa : kAll) {
    if (name == isa_name(isa)) return isa;
  }
  return std::nullopt;
}

bool cpu_supports(Isa isa) {
  if (isa == Isa::kScalar) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();  // also checks XGETBV: a feature whose registers the system does not save is not reported
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;  // F16C by hand: Clang 14 does not know the name
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  if (isa == Isa::kAvx2) return avx2;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (isa == Isa::kAvx512) return avx512;
  const bool avx512_bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  if (isa == Isa::kAvx512Bf16 || !avx512_bf16) return avx512_bf16;
  static const bool amx = lets_us_use_amx();
  return amx;
#else
  return false;
#endif
}

Isa choose_isa(std::string_view forced) {
  if (!forced.empty()) {
    const auto isa = parse_isa(forced);
    if (!isa) {
      throw std::invalid_argument("MS_FORCE_ISA is '" + std::string(forced) +
                                  "'; expected scalar, avx2, avx512, avx512_bf16 or amx");
    }
    if (!cpu_supports(*isa)) {
      throw std::invalid_argument("MS_FORCE_ISA is '" + std::string(forced) +
                                  "', which this CPU does not support; unset it to use the best supported one");
    }
    return *isa;
  }
  for (const Isa isa : kAll) {
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
