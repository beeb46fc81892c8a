#include "core/io/detail/zstd_filter.h"

#include <zstd.h>

#include <cstdlib>

namespace ms::core::detail {
namespace {

// At most the size of a chunk (HDF5: below 4 GiB), and at most what zstd can produce from `size` bytes of frame.
bool plausible(unsigned long long content, size_t size) {
  constexpr unsigned long long kMaxChunk = 0xffffffffULL, kMaxRatio = 1 << 17;  // an RLE block: 4 bytes for 128 KiB
  return content != ZSTD_CONTENTSIZE_ERROR && content != ZSTD_CONTENTSIZE_UNKNOWN && content > 0 &&
         content <= kMaxChunk && content / kMaxRatio <= size;
}

// An H5Z_func_t: returns the new size, 0 on failure; *buffer is allocated with malloc.
size_t filter(unsigned flags, size_t num_values, const unsigned values[], size_t size, size_t* buffer_size,
              void** buffer) {
  const bool decompress = (flags & H5Z_FLAG_REVERSE) != 0;
  size_t room = 0;
  if (decompress) {
    const unsigned long long content = ZSTD_getFrameContentSize(*buffer, size);
    if (!plausible(content, size)) return 0;
    room = static_cast<size_t>(content);
  } else {
    room = ZSTD_compressBound(size);
  }
  void* out = std::malloc(room);
  if (out == nullptr) return 0;
  const size_t made = decompress
                          ? ZSTD_decompress(out, room, *buffer, size)
                          : ZSTD_compress(out, room, *buffer, size, num_values > 0 ? static_cast<int>(values[0]) : 1);
  if (ZSTD_isError(made) != 0) {
    std::free(out);
    return 0;
  }
  std::free(*buffer);
  *buffer = out;
  *buffer_size = room;
  return made;
}

}  // namespace

const H5Z_class2_t kZstdFilterClass = {H5Z_CLASS_T_VERS, kZstdFilter, 1, 1, "zstd", nullptr, nullptr, filter};

}  // namespace ms::core::detail
