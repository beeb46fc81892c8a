// The byte shuffle of HDF5 and Blosc: reads element by element, writes byte plane by byte plane. Almost only the
// exponent bytes of weights compress, so they are stored in a plane of their own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ms::kernels {

// Byte b of element i goes to planes[b][i]. item: bytes per element, 1 to 16. in: n * item bytes; planes: `item`
// pointers to n bytes each, none overlapping in.
void split_planes(const std::byte* in, int64_t n, int item, std::byte* const* planes);

// The inverse of split_planes.
void join_planes(const std::byte* const* planes, int64_t n, int item, std::byte* out);

}  // namespace ms::kernels
