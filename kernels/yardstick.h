// What the machine can do at best, which the speed of kernels is held against: multiply-adds on registers, and streams
// through memory. Called by as many threads as the kernel runs on, at once.
#pragma once

#include <array>
#include <cstdint>

namespace ms::kernels {

// Runs steps x 12 independent fp32 multiply-adds per lane of the active instruction set, on registers alone: more
// chains than latency (4 to 5 cycles) times ports (2). Returns the FLOPs that were executed.
double multiply_adds(int64_t steps);

// The same of AVX512_BF16's dot products (bf16 pairs into fp32). 0 where the active instruction set has none.
double bf16_multiply_adds(int64_t steps);

// Whether those outrun fp32 multiply-adds: they are twice as fast on Zen 4 and half as fast on Sapphire Rapids.
// Measured at the first call, in some 0.3 ms, the best of several turns of each; constant after it.
bool bf16_dot_products_are_faster();

inline constexpr int kMostStreamReads = 4, kMostStreamWrites = 4;

// Operands, 32-byte aligned and of one length; as many as the mover reads and writes are used.
struct Streams {
  std::array<const float*, kMostStreamReads> in;
  std::array<float*, kMostStreamWrites> out;
};

#if defined(__x86_64__)
inline constexpr bool kHasStreamingStores = true;
#else
inline constexpr bool kHasStreamingStores = false;
#endif

// Writes the sum of all inputs to every output, elements [begin, end), both multiples of 8; with no output it only
// reads.
using MoveStreams = void (*)(const Streams& streams, int64_t begin, int64_t end);

// The mover of so many streams. past_caches: by streaming stores, where there are any. Throws std::invalid_argument for
// a mix that no kernel has: reads/writes are 1/0, 1/1, 1/2, 2/1, 3/1, 3/2 or 4/4.
MoveStreams stream_mover(int reads, int writes, bool past_caches);

}  // namespace ms::kernels
