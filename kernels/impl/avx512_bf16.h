// Compiles MS_KERNEL_BODY once, in namespace ms::kernels::avx512_bf16, for AVX-512 with BF16; on x86-64 only. If
// included before foreach_isa.h, MS_DISPATCH calls this body for Isa::kAvx512Bf16 and above. The rules of foreach_isa.h
// apply.
#ifndef MS_KERNEL_BODY
#error "define MS_KERNEL_BODY before including avx512_bf16.h"
#endif

#include "kernels/impl/region.h"

#if defined(__x86_64__)
#define MS_FOR_AVX512_BF16(...) avx512_bf16::__VA_ARGS__
#define MS_ISA 2
#define MS_ROUNDS_TO_BF16
#define MS_TARGET MS_TARGET_AVX512_BF16
#include "kernels/impl/target_push.h"
namespace ms::kernels::avx512_bf16 {
#include "kernels/impl/simd.inl"
// The body must come second.
#include MS_KERNEL_BODY
}  // namespace ms::kernels::avx512_bf16
#include "kernels/impl/target_pop.h"
#undef MS_ROUNDS_TO_BF16
#undef MS_ISA
#endif
