// Includes that kernel bodies need, before a target region begins: bodies include nothing themselves.
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
