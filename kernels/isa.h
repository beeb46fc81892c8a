// The instruction set that the kernels of this process use, chosen once.
//
// Every kernel is compiled for each of these (kernels/impl/foreach_isa.h) and agrees with its scalar version within the
// tolerance its test derives. Bits may differ between instruction sets, but not between runs on the same one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ms::kernels {

enum class Isa : uint8_t { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmx };  // each includes all before it

std::string_view isa_name(Isa isa);  // "scalar", "avx2", "avx512", "avx512_bf16", "amx"
std::optional<Isa> parse_isa(std::string_view name);

// Whether the CPU and the operating system support it (CPUID and XGETBV). kAvx2 implies FMA and F16C; kAvx512 is F, BW,
// DQ and VL; kAvx512Bf16 adds bf16 dot products and a conversion to bf16 that flushes denormal numbers to 0; kAmx adds
// bf16 tiles, which the process requests from Linux at the first call (arch_prctl, ARCH_REQ_XCOMP_PERM). Kernels that
// have no use for a level run the code of the level before it.
bool cpu_supports(Isa isa);

// The best supported instruction set, or the one MS_FORCE_ISA names. Throws std::invalid_argument if that variable
// holds an unknown name or one that this CPU does not support. Decided at the first call, constant afterwards.
Isa active_isa();

// What active_isa returns for a given value of MS_FORCE_ISA (empty: not set); for tests.
Isa choose_isa(std::string_view forced);

}  // namespace ms::kernels
