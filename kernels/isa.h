// The instruction set that the kernels of this process run on, chosen once.
//
// Every kernel exists for each of these (kernels/impl/foreach_isa.h) and agrees with its scalar twin within the
// tolerance its test derives; bits may differ between instruction sets, never between runs on one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ms::kernels {

enum class Isa : uint8_t { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmx };  // each has all before it

std::string_view isa_name(Isa isa);  // "scalar", "avx2", "avx512", "avx512_bf16", "amx"
std::optional<Isa> parse_isa(std::string_view name);

// What the CPU and the operating system offer: CPUID and XGETBV. kAvx2 implies FMA and F16C; kAvx512 is F, BW, DQ, VL;
// kAvx512Bf16 adds dot products of bf16 and a rounding to it that gives 0 of denormal numbers; kAmx adds tiles of bf16,
// which the process asks Linux for at the first call (arch_prctl, ARCH_REQ_XCOMP_PERM). Kernels without use for these
// run as on what comes before.
bool cpu_supports(Isa isa);

// The best supported one, or the one MS_FORCE_ISA names. Throws std::invalid_argument if that variable holds an unknown
// name, or one this CPU lacks. Decided at the first call, constant after it.
Isa active_isa();

// The rule of active_isa for a given value of MS_FORCE_ISA (empty: not set); for tests.
Isa choose_isa(std::string_view forced);

}  // namespace ms::kernels
