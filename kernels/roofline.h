// Measures the machine's roofline, to compare kernels with: multiply-adds on registers, and streams through memory.
// Call from as many threads at once as the kernel uses.
#pragma once

#include <array>
#include <cstdint>

namespace ms::kernels {

// Runs steps x 12 independent fp32 multiply-adds per lane of the active instruction set, on registers only: 12 chains
// exceed latency (4 to 5 cycles) times ports (2). Returns the number of FLOPs executed.
double multiply_adds(int64_t steps);

// The same with AVX512_BF16 dot products (bf16 pairs into fp32). Returns 0 if the active instruction set has none.
double bf16_multiply_adds(int64_t steps);

// Whether bf16 dot products outrun fp32 multiply-adds: they are twice as fast on Zen 4 and half as fast on Sapphire
// Rapids. Measured at the first call in about 0.3 ms, best of several turns of each; constant afterwards.
bool bf16_dot_products_are_faster();

inline constexpr int kMaxStreamReads = 4, kMaxStreamWrites = 4;

// Operands, 32-byte aligned and of equal length; the mover uses as many as it reads and writes.
struct Streams {
  std::array<const float*, kMaxStreamReads> in;
  std::array<float*, kMaxStreamWrites> out;
};

#if defined(__x86_64__)
inline constexpr bool kHasStreamingStores = true;
#else
inline constexpr bool kHasStreamingStores = false;
#endif

// Writes the sum of all inputs to every output for elements [begin, end), both multiples of 8; without outputs it only
// reads.
using MoveStreams = void (*)(const Streams& streams, int64_t begin, int64_t end);

// The mover for this many streams. non_temporal: use streaming stores if the CPU has them. Throws std::invalid_argument
// unless reads/writes is 1/0, 1/1, 1/2, 2/1, 3/1, 3/2, 4/3 or 4/4.
MoveStreams stream_mover(int reads, int writes, bool non_temporal);

}  // namespace ms::kernels
