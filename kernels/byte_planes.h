// The byte shuffle of HDF5 and Blosc: element by element in, byte plane by byte plane out. Weights compress in the
// plane of their exponents alone, so that plane has to lie by itself (checkpoints.md 12.3).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ms::kernels {

// Byte b of element i goes to planes[b][i]. item: bytes of an element, 1 to 16. in: n * item bytes; planes: item
// pointers to n bytes each, none within in.
void split_planes(const std::byte* in, int64_t n, int item, std::byte* const* planes);

// The inverse.
void join_planes(const std::byte* const* planes, int64_t n, int item, std::byte* out);

}  // namespace ms::kernels
