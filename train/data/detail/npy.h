// int64 arrays as .npy files, version 1.0, so that numpy can read our cached indices.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ms::train::detail {

// Header of a C-ordered little-endian int64 array [rows] or, for columns > 1, [rows, columns]. Its length is a multiple
// of 64 bytes, so that the data of a mapped file is 64-byte aligned.
std::string npy_header(int64_t rows, int64_t columns);

// Writes header and data to `path`, which must not exist, and syncs it. Throws kIo.
void write_npy(const std::string& path, std::span<const int64_t> data, int64_t columns);

}  // namespace ms::train::detail
