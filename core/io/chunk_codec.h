// Encodes a chunk of numbers as HDF5's shuffle filter and one standard zstd frame, at disk speed; h5py and h5dump can
// read it with any zstd plugin (filter 32015).
//
// In trained weights only the plane of exponents compresses, by its distribution and not by repetition. That plane is
// Huffman coded by zstd (its fastest level, literals compressed); the others are stored in the frame as raw blocks (RFC
// 8878, 3.1.1.2). tests/core/io/chunk_codec_test.cpp checks the ratios (fp32 1.19, bf16 1.47).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/io/aligned_buffer.h"

namespace ms::core {

// For one thread: the frame buffer is reused from chunk to chunk.
class ChunkEncoder {
 public:
  struct Stored {
    std::span<const std::byte> bytes;  // valid until the next call
    bool raw = false;                  // `bytes` are the plain values, because a frame would not be smaller
  };
  // values: whole elements of `item` bytes (at most 16), padded with zeros to full_bytes (below 2^31). The frame, like
  // padded raw values, is aligned to kDirectAlignment. The same input gives the same bytes.
  Stored encode(std::span<const std::byte> values, size_t full_bytes, int item);

 private:
  AlignedBuffer frame_;
  AlignedBuffer coded_;  // planes that compress
};

// Decodes a frame and unshuffles it into `out`. Throws kCorruptData if it is not a frame or has another size; allocates
// no more than out's size.
void decompress_chunk(std::span<const std::byte> frame, int item, std::span<std::byte> out);

}  // namespace ms::core
