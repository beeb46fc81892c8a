// A chunk of numbers as HDF5's shuffle filter and one standard zstd frame: what h5py and h5dump read with any zstd
// plugin (filter 32015), at disk speed.
//
// Only the plane of exponents of trained weights compresses, and only its distribution counts, not repetitions: that
// plane is Huffman coded by zstd (its fastest level, literals compressed), the others lie in the frame as raw blocks
// (RFC 8878, 3.1.1.2). limits.md, storage, has the measurements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ms::core {

// The frame of `bytes`, whole elements of `item` bytes, at most 2^31 of them. Empty if it is not smaller than bytes:
// the chunk is then stored as it is. Same input, same frame. `scratch` is kept between calls.
std::span<const std::byte> compress_chunk(std::span<const std::byte> bytes, int item, std::vector<std::byte>& scratch);

// Fills `out` with what the frame holds, unshuffled. Throws kCorruptData if it is no frame, or not of that size;
// allocates no more than out's size.
void decompress_chunk(std::span<const std::byte> frame, int item, std::span<std::byte> out);

}  // namespace ms::core
