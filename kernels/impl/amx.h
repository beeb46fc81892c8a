// Compiles MS_KERNEL_BODY once, in namespace ms::kernels::amx, for AVX-512 with BF16 and AMX bf16 tiles; on x86-64
// only. The rules of foreach_isa.h apply.
#ifndef MS_KERNEL_BODY
#error "define MS_KERNEL_BODY before including amx.h"
#endif

#include "kernels/impl/region.h"

#if defined(__x86_64__)
#define MS_ISA 2
#define MS_ROUNDS_TO_BF16
#if defined(__clang__)
#pragma clang attribute push(                                                                                 \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // as in foreach_isa.h
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
namespace ms::kernels::amx {
#include "kernels/impl/amx_registers.inl"
#include "kernels/impl/simd.inl"
// The body must come last.
#include MS_KERNEL_BODY
}  // namespace ms::kernels::amx
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif
#undef MS_ROUNDS_TO_BF16
#undef MS_ISA
#endif
