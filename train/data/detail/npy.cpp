#include "train/data/detail/npy.h"

#include "core/error.h"
#include "core/io/file.h"

namespace ms::train::detail {

std::string npy_header(int64_t rows, int64_t columns) {
  std::string dict = core::cat("{'descr': '<i8', 'fortran_order': False, 'shape': (", rows, ",");
  dict += columns > 1 ? core::cat(" ", columns, "), }") : "), }";
  constexpr size_t kPrefix = 10;  // magic, version, length
  dict.append(63 - (kPrefix + dict.size()) % 64, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xFF);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

void write_npy(const std::string& path, std::span<const int64_t> data, int64_t columns) {
  const std::string header = npy_header(static_cast<int64_t>(data.size()) / columns, columns);
  core::File file = core::File::create(path);
  file.pwrite(std::as_bytes(std::span(header)), 0);
  file.pwrite(std::as_bytes(data), static_cast<int64_t>(header.size()));
  file.fsync();
  file.close();
}

}  // namespace ms::train::detail
