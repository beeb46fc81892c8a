// Compiles MS_KERNEL_BODY once, in namespace ms::kernels::amx, for AVX-512 with BF16 and AMX bf16 tiles; on x86-64
// only. The rules of foreach_isa.h apply.
#ifndef MS_KERNEL_BODY
#error "define MS_KERNEL_BODY before including amx.h"
#endif

#include "kernels/impl/region.h"

#if defined(__x86_64__)
#define MS_ISA 2
#define MS_ROUNDS_TO_BF16
#define MS_TARGET MS_TARGET_AMX
#include "kernels/impl/target_push.h"
namespace ms::kernels::amx {
#include "kernels/impl/amx_registers.inl"
#include "kernels/impl/simd.inl"
// The body must come last.
#include MS_KERNEL_BODY
}  // namespace ms::kernels::amx
#include "kernels/impl/target_pop.h"
#undef MS_ROUNDS_TO_BF16
#undef MS_ISA
#endif
