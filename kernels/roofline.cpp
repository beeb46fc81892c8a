#include "kernels/roofline.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stdexcept>

#include "kernels/isa.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ms::kernels {
namespace {

constexpr int kChains = 12;

// Keeps the compiler from removing an unused computation.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) double multiply_adds_avx2(int64_t steps) {
  __m256 chains[kChains];
  for (auto& chain : chains) chain = _mm256_set1_ps(1.0F);
  const __m256 factor = _mm256_set1_ps(0.999F), term = _mm256_set1_ps(0.001F);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (auto& chain : chains) chain = _mm256_fmadd_ps(chain, factor, term);
  }
  for (const auto& chain : chains) keep(_mm256_cvtss_f32(chain));
  return 2.0 * 8 * kChains * static_cast<double>(steps);
}

__attribute__((target("avx512f"))) double multiply_adds_avx512(int64_t steps) {
  __m512 chains[kChains];
  for (auto& chain : chains) chain = _mm512_set1_ps(1.0F);
  const __m512 factor = _mm512_set1_ps(0.999F), term = _mm512_set1_ps(0.001F);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (auto& chain : chains) chain = _mm512_fmadd_ps(chain, factor, term);
  }
  for (const auto& chain : chains) keep(_mm512_cvtss_f32(chain));
  return 2.0 * 16 * kChains * static_cast<double>(steps);
}

__attribute__((target("avx512f,avx512bf16"))) double bf16_multiply_adds_avx512(int64_t steps) {
  __m512 chains[kChains];
  for (auto& chain : chains) chain = _mm512_set1_ps(1.0F);
  const auto factor = (__m512bh)_mm512_set1_epi32(0x3a803f80);  // 1 and 2^-10
  const auto term = (__m512bh)_mm512_set1_epi32(0x3a803a80);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (auto& chain : chains) chain = _mm512_dpbf16_ps(chain, factor, term);
  }
  for (const auto& chain : chains) keep(_mm512_cvtss_f32(chain));
  return 2.0 * 32 * kChains * static_cast<double>(steps);
}

template <int kReads, int kWrites, bool kNonTemporal>
__attribute__((target("avx2"))) void move_avx2(const Streams& s, int64_t begin, int64_t end) {
  __m256 total = _mm256_setzero_ps();
  for (int64_t i = begin; i < end; i += 8) {
    __m256 x = _mm256_load_ps(s.in[0] + i);
#pragma GCC unroll 4
    for (int r = 1; r < kReads; ++r) x = _mm256_add_ps(x, _mm256_load_ps(s.in[static_cast<size_t>(r)] + i));
#pragma GCC unroll 4
    for (int w = 0; w < kWrites; ++w) {
      float* const target = s.out[static_cast<size_t>(w)] + i;
      if (kNonTemporal) {
        _mm256_stream_ps(target, x);
      } else {
        _mm256_store_ps(target, x);
      }
    }
    if (kWrites == 0) total = _mm256_add_ps(total, x);
  }
  if (kNonTemporal) _mm_sfence();
  keep(total);
}
#endif

double multiply_adds_scalar(int64_t steps) {
  float chains[kChains];
  for (auto& chain : chains) chain = 1.0F;
  for (int64_t step = 0; step < steps; ++step) {
    for (auto& chain : chains) chain = chain * 0.999F + 0.001F;
  }
  for (const auto& chain : chains) keep(chain);
  return 2.0 * kChains * static_cast<double>(steps);
}

template <int kReads, int kWrites>
void move_scalar(const Streams& s, int64_t begin, int64_t end) {
  float total = 0;
  for (int64_t i = begin; i < end; ++i) {
    float x = 0;
    for (int r = 0; r < kReads; ++r) x += s.in[static_cast<size_t>(r)][i];
    for (int w = 0; w < kWrites; ++w) s.out[static_cast<size_t>(w)][i] = x;
    total += x;
  }
  keep(total);
}

template <int kReads, int kWrites>
MoveStreams choose(bool non_temporal) {
#if defined(__x86_64__)
  if (cpu_supports(Isa::kAvx2)) {  // memory bandwidth does not depend on MS_FORCE_ISA
    return non_temporal ? move_avx2<kReads, kWrites, true> : move_avx2<kReads, kWrites, false>;
  }
#endif
  (void)non_temporal;
  return move_scalar<kReads, kWrites>;
}

}  // namespace

double multiply_adds(int64_t steps) {
#if defined(__x86_64__)
  if (active_isa() >= Isa::kAvx512) return multiply_adds_avx512(steps);
  if (active_isa() == Isa::kAvx2) return multiply_adds_avx2(steps);
#endif
  return multiply_adds_scalar(steps);
}

double bf16_multiply_adds(int64_t steps) {
#if defined(__x86_64__)
  if (active_isa() >= Isa::kAvx512Bf16) return bf16_multiply_adds_avx512(steps);
#endif
  (void)steps;
  return 0;
}

bool bf16_dot_products_are_faster() {
  static const bool faster = [] {
    constexpr int kTurns = 8;
    constexpr int64_t kSteps = 6000;  // 20 us: shorter than a time slice, so few turns are interrupted
    const auto rate = [](double (*run)(int64_t)) {
      const auto start = std::chrono::steady_clock::now();
      const double flops = run(kSteps);
      return flops / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    double fp32 = 0, bf16 = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      fp32 = std::max(fp32, rate(multiply_adds));
      bf16 = std::max(bf16, rate(bf16_multiply_adds));
    }
    return bf16 > fp32;
  }();
  return faster;
}

MoveStreams stream_mover(int reads, int writes, bool non_temporal) {
  switch (10 * reads + writes) {
    case 10:
      return choose<1, 0>(non_temporal);
    case 11:
      return choose<1, 1>(non_temporal);
    case 12:
      return choose<1, 2>(non_temporal);
    case 21:
      return choose<2, 1>(non_temporal);
    case 31:
      return choose<3, 1>(non_temporal);
    case 32:
      return choose<3, 2>(non_temporal);
    case 43:
      return choose<4, 3>(non_temporal);
    case 44:
      return choose<4, 4>(non_temporal);
    default:
      throw std::invalid_argument("stream_mover: no kernel for this number of reads and writes");
  }
}

}  // namespace ms::kernels
