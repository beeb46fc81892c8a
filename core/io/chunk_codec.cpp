#include "core/io/chunk_codec.h"

// The mode of literal compression is only in the static API; the symbols are in the shared library all the same.
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "kernels/byte_planes.h"

namespace ms::core {
namespace {

constexpr size_t kBlockBytes = ZSTD_BLOCKSIZE_MAX;  // 128 KiB, the most that a block may hold
constexpr size_t kBlockHeaderBytes = 3;
constexpr size_t kFrameHeaderBytes = 9;  // magic, descriptor, 4 bytes of content size
constexpr int kMaxItem = 16;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

void put(std::byte*& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) *out++ = static_cast<std::byte>(value >> (8 * i));
}

// Whether byte `plane` of the elements says less than its eight bits, by a sample of them.
bool compresses(std::span<const std::byte> bytes, int item, int plane) {
  constexpr int64_t kSamples = 4096;
  const int64_t n = static_cast<int64_t>(bytes.size()) / item, step = std::max<int64_t>(1, n / kSamples);
  std::array<int64_t, 256> counts{};
  int64_t total = 0;
  for (int64_t i = 0; i < n; i += step, ++total)
    ++counts[static_cast<size_t>(bytes[static_cast<size_t>(i * item + plane)])];
  double bits = 0;
  for (const int64_t count : counts) {
    if (count > 0)
      bits -= static_cast<double>(count) * std::log2(static_cast<double>(count) / static_cast<double>(total));
  }
  // A uniform byte's sample has an entropy a little below 8.
  return bits / static_cast<double>(std::max<int64_t>(1, total)) <
         std::min(7.5, 0.9 * std::log2(static_cast<double>(total) + 1));
}

// zstd's own frame of `bytes` without matches worth the search, appended as blocks; returns the new end.
std::byte* append_compressed(std::span<const std::byte> bytes, std::span<std::byte> frame, std::byte* out) {
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeContext> context = [] {
    std::unique_ptr<ZSTD_CCtx, FreeContext> made(ZSTD_createCCtx());
    MS_CHECK(made != nullptr, "ZSTD_createCCtx");
    ZSTD_CCtx_setParameter(made.get(), ZSTD_c_compressionLevel, -20000);
    ZSTD_CCtx_setParameter(made.get(), ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    ZSTD_CCtx_setParameter(made.get(), ZSTD_c_minMatch, 7);
    ZSTD_CCtx_setParameter(made.get(), ZSTD_c_hashLog, 6);
    ZSTD_CCtx_setParameter(made.get(), ZSTD_c_checksumFlag, 0);
    return made;
  }();
  const size_t size = ZSTD_compress2(context.get(), frame.data(), frame.size(), bytes.data(), bytes.size());
  MS_CHECK(ZSTD_isError(size) == 0, "ZSTD_compress2: ", ZSTD_getErrorName(size));
  const size_t header = ZSTD_frameHeaderSize(frame.data(), size);
  std::memcpy(out, frame.data() + header, size - header);
  return out + (size - header);
}

}  // namespace

std::span<const std::byte> compress_chunk(std::span<const std::byte> bytes, int item, std::vector<std::byte>& scratch) {
  MS_CHECK(item >= 1 && item <= kMaxItem && bytes.size() % static_cast<size_t>(item) == 0 && bytes.size() >> 31 == 0,
           bytes.size(), " bytes of elements of ", item);
  if (bytes.empty()) return {};
  const auto n = static_cast<int64_t>(bytes.size()) / item;
  // Raw blocks first, then one compressed run to the end: its blocks build on each other.
  int raw_planes = 0;
  while (raw_planes < item && !compresses(bytes, item, raw_planes)) ++raw_planes;
  if (raw_planes == item) return {};
  const size_t raw_bytes = static_cast<size_t>(raw_planes * n), coded_bytes = bytes.size() - raw_bytes;
  const size_t room = kFrameHeaderBytes + raw_bytes +
                      (static_cast<size_t>(n) / kBlockBytes + 1) * kBlockHeaderBytes * static_cast<size_t>(item) +
                      ZSTD_compressBound(coded_bytes);
  const size_t frame_room = ZSTD_compressBound(coded_bytes);
  scratch.resize(room + coded_bytes + frame_room);
  std::byte* const coded = scratch.data() + room;
  std::byte* out = scratch.data();
  put(out, ZSTD_MAGICNUMBER, 4);
  put(out, 0xA0, 1);  // one segment, content size in 4 bytes, no checksum, no dictionary
  put(out, bytes.size(), 4);
  // Each raw plane is n bytes in blocks of kBlockBytes; the split writes straight into them.
  std::array<std::byte*, kMaxItem> begin{};
  const auto blocks = (static_cast<size_t>(n) + kBlockBytes - 1) / kBlockBytes;
  for (int plane = 0; plane < raw_planes; ++plane) {
    begin[static_cast<size_t>(plane)] = out;
    for (size_t block = 0; block < blocks; ++block) {
      const size_t size = std::min(kBlockBytes, static_cast<size_t>(n) - block * kBlockBytes);
      put(out, size << 3, kBlockHeaderBytes);  // not the last, type raw
      out += size;
    }
  }
  for (size_t block = 0; block < blocks; ++block) {
    const size_t first = block * kBlockBytes, count = std::min(kBlockBytes, static_cast<size_t>(n) - first);
    std::array<std::byte*, kMaxItem> planes{};
    for (int plane = 0; plane < item; ++plane) {
      planes[static_cast<size_t>(plane)] =
          plane < raw_planes
              ? begin[static_cast<size_t>(plane)] + block * (kBlockBytes + kBlockHeaderBytes) + kBlockHeaderBytes
              : coded + static_cast<size_t>(plane - raw_planes) * static_cast<size_t>(n) + first;
    }
    kernels::split_planes(bytes.data() + first * static_cast<size_t>(item), static_cast<int64_t>(count), item,
                          planes.data());
  }
  out = append_compressed({coded, coded_bytes}, {coded + coded_bytes, frame_room}, out);
  const auto size = static_cast<size_t>(out - scratch.data());
  if (size >= bytes.size()) return {};
  return {scratch.data(), size};
}

void decompress_chunk(std::span<const std::byte> frame, int item, std::span<std::byte> out) {
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  thread_local std::vector<std::byte> shuffled;
  MS_CHECK(item >= 1 && item <= kMaxItem && out.size() % static_cast<size_t>(item) == 0, out.size(), " of ", item);
  if (ZSTD_getFrameContentSize(frame.data(), frame.size()) != out.size()) {
    throw Error(ErrorCode::kCorruptData, cat("a chunk's zstd frame does not say that it holds ", out.size(), " bytes"));
  }
  shuffled.resize(out.size());
  const size_t size = ZSTD_decompressDCtx(context.get(), shuffled.data(), shuffled.size(), frame.data(), frame.size());
  if (ZSTD_isError(size) != 0 || size != out.size()) {
    throw Error(ErrorCode::kCorruptData,
                cat("a chunk's zstd frame: ", ZSTD_isError(size) != 0 ? ZSTD_getErrorName(size) : "it is short"));
  }
  const size_t n = out.size() / static_cast<size_t>(item);
  std::array<const std::byte*, kMaxItem> planes{};
  for (int plane = 0; plane < item; ++plane) {
    planes[static_cast<size_t>(plane)] = shuffled.data() + static_cast<size_t>(plane) * n;
  }
  kernels::join_planes(planes.data(), static_cast<int64_t>(n), item, out.data());
}

}  // namespace ms::core
