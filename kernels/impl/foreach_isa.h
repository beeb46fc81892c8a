// Compiles MS_KERNEL_BODY once per instruction set, in namespaces scalar, avx2 and avx512 of ms::kernels, each inside a
// target region. A kernel's .cpp includes what the body needs, defines MS_KERNEL_BODY, includes this file once, and
// then selects with MS_DISPATCH.
//
// Target regions instead of per-file -mavx512f, because the linker may pick library inline functions compiled in such a
// file for code that runs on older CPUs. Bodies include nothing and use no lambdas (GCC compiles a lambda's body for
// the file's target, not the region's).
// Google Highway 1.0.3 (Debian 12) was considered: its conversion to bf16 truncates, but training needs rounding.
#ifndef MS_KERNEL_BODY
#error "define MS_KERNEL_BODY before including foreach_isa.h"
#endif

#include "kernels/impl/region.h"

#define MS_ISA 0
#include "kernels/impl/target_push.h"
namespace ms::kernels::scalar {
#include "kernels/impl/simd.inl"
// The body must come after simd.inl, which it uses.
#include MS_KERNEL_BODY
}  // namespace ms::kernels::scalar
#include "kernels/impl/target_pop.h"
#undef MS_ISA

#if defined(__x86_64__)

#define MS_ISA 1
#define MS_TARGET MS_TARGET_AVX2
#include "kernels/impl/target_push.h"
namespace ms::kernels::avx2 {
#include "kernels/impl/simd.inl"
// The body must come second.
#include MS_KERNEL_BODY
}  // namespace ms::kernels::avx2
#include "kernels/impl/target_pop.h"
#undef MS_ISA

#define MS_ISA 2
#define MS_TARGET MS_TARGET_AVX512
#include "kernels/impl/target_push.h"
namespace ms::kernels::avx512 {
#include "kernels/impl/simd.inl"
// The body must come second.
#include MS_KERNEL_BODY
}  // namespace ms::kernels::avx512
#include "kernels/impl/target_pop.h"
#undef MS_ISA

// Calls `call` in the active instruction set's namespace, for example MS_DISPATCH(rms_norm(x, gamma, rows)).
#ifndef MS_FOR_AVX512_BF16
#define MS_FOR_AVX512_BF16(...) avx512::__VA_ARGS__
#endif
#define MS_DISPATCH(...)                      \
  switch (active_isa()) {                     \
    case Isa::kAmx:                           \
    case Isa::kAvx512Bf16:                    \
      return MS_FOR_AVX512_BF16(__VA_ARGS__); \
    case Isa::kAvx512:                        \
      return avx512::__VA_ARGS__;             \
    case Isa::kAvx2:                          \
      return avx2::__VA_ARGS__;               \
    case Isa::kScalar:                        \
      break;                                  \
  }                                           \
  return scalar::__VA_ARGS__

#else
#define MS_DISPATCH(...) return scalar::__VA_ARGS__
#endif
