#include "kernels/gemm/int8_gemm.h"

#include <cstring>

#include "kernels/detail/scratch.h"
#include "kernels/impl/region.h"
#if defined(__x86_64__)

#define MS_VNNI 0
#define MS_TARGET "avx2"
#include "kernels/impl/target_push.h"
namespace ms::kernels::avx2_int8 {
#include "kernels/gemm/impl/int8_gemm.inl"
}  // namespace ms::kernels::avx2_int8
#include "kernels/impl/target_pop.h"
#undef MS_VNNI

#define MS_VNNI 1
#define MS_TARGET "avx2,avx512f,avx512bw,avx512vl,avx512vnni"
#include "kernels/impl/target_push.h"
namespace ms::kernels::vnni_int8 {
#include "kernels/gemm/impl/int8_gemm.inl"
}  // namespace ms::kernels::vnni_int8
#include "kernels/impl/target_pop.h"
#undef MS_VNNI
#endif

namespace ms::kernels {
namespace {

enum class Path { kScalar, kAvx2, kVnni };

Path path() {
#if defined(__x86_64__)
  static const bool vnni = __builtin_cpu_supports("avx512vnni") != 0;
  if (active_isa() >= Isa::kAvx512 && vnni) return Path::kVnni;
  if (active_isa() != Isa::kScalar) return Path::kAvx2;
#endif
  return Path::kScalar;
}

void plain(int64_t m, int64_t n, int64_t k, const int8_t* a, int64_t lda, const int8_t* b, int64_t ldb, int32_t* c,
           int64_t ldc) {
  for (int64_t i = 0; i < m; ++i, a += lda, c += ldc) {
    for (int64_t j = 0; j < n; ++j) c[j] = 0;
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t j = 0; j < n; ++j) c[j] += a[p] * b[p * ldb + j];
    }
  }
}

}  // namespace

const char* int8_gemm_name() {
  switch (path()) {
    case Path::kVnni:
      return "vnni";
    case Path::kAvx2:
      return "avx2";
    case Path::kScalar:
      break;
  }
  return "scalar";
}

void int8_gemm(int64_t m, int64_t n, int64_t k, const int8_t* a, int64_t lda, const int8_t* b, int64_t ldb, int32_t* c,
               int64_t ldc) {
#if defined(__x86_64__)
  thread_local ScratchBuffer scratch;
  const auto room = [&](int64_t depth, int64_t columns, size_t size) {
    const auto bytes = static_cast<int64_t>(static_cast<size_t>((k + depth) * columns) * size);
    return static_cast<void*>(scratch.floats(bytes / 4 + 1));
  };
  switch (path()) {
    case Path::kVnni:
      return vnni_int8::int8_gemm(
          m, n, k, a, lda, b, ldb, c, ldc,
          static_cast<vnni_int8::Packed*>(room(vnni_int8::kDepth, vnni_int8::kColumns, sizeof(vnni_int8::Packed))));
    case Path::kAvx2:
      return avx2_int8::int8_gemm(
          m, n, k, a, lda, b, ldb, c, ldc,
          static_cast<avx2_int8::Packed*>(room(avx2_int8::kDepth, avx2_int8::kColumns, sizeof(avx2_int8::Packed))));
    case Path::kScalar:
      break;
  }
#endif
  plain(m, n, k, a, lda, b, ldb, c, ldc);
}

}  // namespace ms::kernels
