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

#include "core/io/aligned_buffer.h"

namespace ms::core {

// One thread's: the memory of a frame is kept from chunk to chunk.
class ChunkEncoder {
 public:
  struct Stored {
    std::span<const std::byte> bytes;  // until the next call
    bool raw = false;                  // the values as they are, which no frame makes smaller
  };
  // `values`, whole elements of `item` bytes (at most 16), filled up with zeros to full_bytes (below 2^31). A frame
  // lies at a multiple of kDirectAlignment, as raw values do that had to be filled up. Same input, same bytes.
  Stored encode(std::span<const std::byte> values, size_t full_bytes, int item);

 private:
  AlignedBuffer frame_;
  AlignedBuffer coded_;  // planes that compress
};

// Fills `out` with what the frame holds, unshuffled. Throws kCorruptData if it is no frame, or not of that size;
// allocates no more than out's size.
void decompress_chunk(std::span<const std::byte> frame, int item, std::span<std::byte> out);

}  // namespace ms::core
