// What must come before a target region (target_push.h): the includes that kernel bodies need, because bodies include
// nothing themselves, and the instruction sets.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "kernels/isa.h"
#include "kernels/stores.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MS_INLINE inline __attribute__((always_inline))

#define MS_TARGET_AVX2 "avx2,fma,f16c"
#define MS_TARGET_AVX512 MS_TARGET_AVX2 ",avx512f,avx512bw,avx512dq,avx512vl"
#define MS_TARGET_AVX512_BF16 MS_TARGET_AVX512 ",avx512bf16"
#define MS_TARGET_AMX MS_TARGET_AVX512_BF16 ",amx-tile,amx-bf16"
