#include "core/io/chunk_codec.h"

// The literal compression mode is declared in the static API only; its symbols are in the shared library as well.
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "core/error.h"
#include "kernels/byte_planes.h"

namespace ms::core {
namespace {

constexpr size_t kBlockBytes = ZSTD_BLOCKSIZE_MAX;  // 128 KiB, the largest block
constexpr size_t kBlockHeaderBytes = 3;
constexpr size_t kFrameHeaderBytes = 9;  // magic, descriptor, 4 bytes of content size
constexpr unsigned kOneSegment = 0xA0;   // descriptor: 4-byte content size, no checksum, no dictionary
constexpr int kMaxItem = 16;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

void put(std::byte*& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) *out++ = static_cast<std::byte>(value >> (8 * i));
}

// Whether byte `plane` of the elements has less than eight bits of entropy, estimated from a sample.
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
  // The sample entropy of a uniform byte is a little below 8.
  return bits / static_cast<double>(std::max<int64_t>(1, total)) <
         std::min(7.5, 0.9 * std::log2(static_cast<double>(total) + 1));
}

// Compresses `bytes` to `out` with zstd, without a serious match search, and writes the blocks only; returns their end.
std::byte* put_compressed(std::span<const std::byte> bytes, std::byte* out, std::byte* room_end) {
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
  const size_t size =
      ZSTD_compress2(context.get(), out, static_cast<size_t>(room_end - out), bytes.data(), bytes.size());
  MS_CHECK(ZSTD_isError(size) == 0, "ZSTD_compress2: ", ZSTD_getErrorName(size));
  const size_t header = ZSTD_frameHeaderSize(out, size);
  std::memmove(out, out + header, size - header);
  return out + (size - header);
}

void put_header(std::byte*& out, size_t content_bytes) {
  put(out, ZSTD_MAGICNUMBER, 4);
  put(out, kOneSegment, 1);
  put(out, content_bytes, 4);
}

// Enumerates the blocks of a plane stored uncompressed in a frame: `given` bytes raw, then zeros as RLE blocks of one
// byte. Calls piece(first, size, zeros, at): bytes [first, first + size) of the plane, with their block `at` bytes
// after the plane's first block.
template <class Piece>
size_t for_each_piece(size_t plane_bytes, size_t given, const Piece& piece) {
  size_t at = 0;
  for (size_t first = 0; first < plane_bytes;) {
    const bool zeros = first >= given;
    const size_t size = std::min(kBlockBytes, (zeros ? plane_bytes : given) - first);
    piece(first, size, zeros, at);
    at += kBlockHeaderBytes + (zeros ? 1 : size);
    first += size;
  }
  return at;
}

size_t stored_plane_bytes(size_t plane_bytes, size_t given) {
  return for_each_piece(plane_bytes, given, [](size_t, size_t, bool, size_t) {});
}

// Never the last block of a frame: compressed data follows.
size_t block_header(size_t size, bool zeros) { return size << 3 | (zeros ? 2 : 0); }

// Contents of a frame that we wrote: planes stored raw, then one compressed run for all other planes.
struct FrameLayout {
  size_t raw_planes = 0;  // 0: none, or the frame is not ours
  size_t given = 0;       // bytes of each plane before the zero padding
  size_t plane = 0;       // stored bytes of each plane
};

FrameLayout layout_of(std::span<const std::byte> frame, size_t plane_bytes, int item) {
  FrameLayout layout;
  const auto header_at = [&](size_t at) {
    return std::to_integer<size_t>(frame[at]) | std::to_integer<size_t>(frame[at + 1]) << 8 |
           std::to_integer<size_t>(frame[at + 2]) << 16;
  };
  if (frame.size() < kFrameHeaderBytes || frame[4] != std::byte{kOneSegment}) return {};
  for (size_t at = kFrameHeaderBytes; layout.given < plane_bytes && frame.size() - at >= kBlockHeaderBytes;) {
    const size_t header = header_at(at), size = header >> 3;
    if ((header & 7) != 0 || size == 0 || size > std::min(kBlockBytes, plane_bytes - layout.given)) break;
    layout.given += size;
    at += kBlockHeaderBytes + size;
    if (size < kBlockBytes || at > frame.size()) break;
  }
  layout.plane = stored_plane_bytes(plane_bytes, layout.given);
  for (size_t begin = kFrameHeaderBytes; layout.given > 0 && layout.raw_planes + 1 < static_cast<size_t>(item);
       begin += layout.plane, ++layout.raw_planes) {
    if (frame.size() - begin < layout.plane) break;
    bool ours = true;
    for_each_piece(plane_bytes, layout.given, [&](size_t, size_t size, bool zeros, size_t at) {
      ours = ours && header_at(begin + at) == block_header(size, zeros) &&
             (!zeros || frame[begin + at + kBlockHeaderBytes] == std::byte{0});
    });
    if (!ours) break;
  }
  return layout;
}

// Decodes into out. Returns false and sets why if zstd fails or the size differs from out.size().
bool decode_frame(std::span<const std::byte> frame, std::span<std::byte> out, std::string& why) {
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  const size_t size = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), frame.data(), frame.size());
  if (ZSTD_isError(size) == 0 && size == out.size()) return true;
  why = ZSTD_isError(size) != 0 ? ZSTD_getErrorName(size) : "its content is too short";
  return false;
}

std::span<std::byte> at_least(AlignedBuffer& buffer, size_t size_bytes) {
  buffer.need(size_bytes);
  return {buffer.data(), size_bytes};
}

}  // namespace

ChunkEncoder::Stored ChunkEncoder::encode(std::span<const std::byte> values, size_t full_bytes, int item) {
  const auto width = static_cast<size_t>(item);
  MS_CHECK(item >= 1 && item <= kMaxItem && values.size() % width == 0 && full_bytes % width == 0 &&
               values.size() <= full_bytes && full_bytes >> 31 == 0,
           values.size(), " of ", full_bytes, " bytes of elements of ", item);
  const size_t plane_bytes = full_bytes / width, count = values.size() / width;
  size_t raw_planes = 0;
  while (raw_planes < width && !compresses(values, item, static_cast<int>(raw_planes))) ++raw_planes;
  const auto as_they_are = [&]() -> Stored {
    if (values.size() == full_bytes) return {values, true};
    frame_.need(full_bytes);
    std::memcpy(frame_.data(), values.data(), values.size());
    std::memset(frame_.data() + values.size(), 0, full_bytes - values.size());
    return {{frame_.data(), full_bytes}, true};
  };
  if (raw_planes == width) return as_they_are();
  const size_t stored_plane = stored_plane_bytes(plane_bytes, count);
  const std::span<std::byte> coded = at_least(coded_, (width - raw_planes) * plane_bytes);
  frame_.need(kFrameHeaderBytes + raw_planes * stored_plane + ZSTD_compressBound(coded.size()));
  std::byte* out = frame_.data();
  put_header(out, full_bytes);
  std::byte* const raw = out;
  out += raw_planes * stored_plane;
  for_each_piece(plane_bytes, count, [&](size_t first, size_t size, bool zeros, size_t at) {
    std::array<std::byte*, kMaxItem> planes{};
    for (size_t plane = 0; plane < width; ++plane) {
      if (plane < raw_planes) {
        planes[plane] = raw + plane * stored_plane + at;
        put(planes[plane], block_header(size, zeros), kBlockHeaderBytes);
        if (zeros) *planes[plane] = std::byte{0};
      } else {
        planes[plane] = coded.data() + (plane - raw_planes) * plane_bytes + first;
        if (zeros) std::memset(planes[plane], 0, size);
      }
    }
    if (zeros) return;
    kernels::split_planes(values.data() + first * width, static_cast<int64_t>(size), item, planes.data());
  });
  out = put_compressed(coded, out, frame_.data() + frame_.size_bytes());
  const auto size = static_cast<size_t>(out - frame_.data());
  if (size >= full_bytes) return as_they_are();
  return {{frame_.data(), size}, false};
}

void decompress_chunk(std::span<const std::byte> frame, int item, std::span<std::byte> out) {
  thread_local AlignedBuffer coded, rest;
  MS_CHECK(item >= 1 && item <= kMaxItem && out.size() % static_cast<size_t>(item) == 0, out.size(), " of ", item);
  if (ZSTD_getFrameContentSize(frame.data(), frame.size()) != out.size()) {
    throw Error(ErrorCode::kCorruptData, cat("a chunk's zstd frame does not declare a size of ", out.size(), " bytes"));
  }
  const auto width = static_cast<size_t>(item);
  const size_t plane_bytes = out.size() / width;
  std::string why;
  // Raw planes need not pass through zstd, because our compressed run can be decoded as a frame of its own. If the run
  // refers to data before it, which ours never does, zstd fails and the whole frame is decoded.
  FrameLayout layout = layout_of(frame, plane_bytes, item);
  std::span<std::byte> decoded;
  if (layout.raw_planes > 0) {
    const std::span<const std::byte> run = frame.subspan(kFrameHeaderBytes + layout.raw_planes * layout.plane);
    const std::span<std::byte> own = at_least(rest, kFrameHeaderBytes + run.size());
    decoded = at_least(coded, (width - layout.raw_planes) * plane_bytes);
    std::byte* end = own.data();
    put_header(end, decoded.size());
    std::copy(run.begin(), run.end(), end);
    if (!decode_frame(own, decoded, why)) layout.raw_planes = 0;
  }
  if (layout.raw_planes == 0) {
    decoded = at_least(coded, out.size());
    if (!decode_frame(frame, decoded, why)) {
      throw Error(ErrorCode::kCorruptData, cat("a chunk's zstd frame: ", why));
    }
  }
  static const std::array<std::byte, kBlockBytes> kZeros{};
  const size_t given = layout.raw_planes > 0 ? layout.given : plane_bytes;
  for_each_piece(plane_bytes, given, [&](size_t first, size_t size, bool zeros, size_t at) {
    std::array<const std::byte*, kMaxItem> planes{};
    for (size_t plane = 0; plane < width; ++plane) {
      const std::byte* const block = frame.data() + kFrameHeaderBytes + plane * layout.plane + at + kBlockHeaderBytes;
      planes[plane] = plane >= layout.raw_planes ? decoded.data() + (plane - layout.raw_planes) * plane_bytes + first
                      : zeros                    ? kZeros.data()
                                                 : block;
    }
    kernels::join_planes(planes.data(), static_cast<int64_t>(size), item, out.data() + first * width);
  });
}

}  // namespace ms::core
