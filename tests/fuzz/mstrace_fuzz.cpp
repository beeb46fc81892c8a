// profile/ingest: a native trace, up to its analyses and Chrome JSON.
//
// An input that starts with the file's magic is a file. Any other is the content of one: chunks of kind (u8), number of
// events (u8), size (u16, little endian) and payload. These are compressed and hashed here, so that the decoder after
// checksum and zstd is reached.
#include <zstd.h>

#include "core/trace/format.h"
#include "kernels/checksum.h"
#include "profile/convert.h"
#include "profile/ingest/load.h"
#include "profile/sections.h"
#include "tests/fuzz/reader.h"

namespace {

namespace format = ms::core::trace;

std::string pack(std::string_view chunks) {
  std::string file(format::kFileMagic);
  uint64_t sequence = 0, first_event = 0;
  while (chunks.size() >= 4) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(chunks[i]); };
    const size_t size = std::min<size_t>(byte(2) | byte(3) << 8, chunks.size() - 4);
    const std::string_view payload = chunks.substr(4, size);
    std::string frame(ZSTD_compressBound(size), '\0');
    frame.resize(ZSTD_compress(frame.data(), frame.size(), payload.data(), payload.size(), 1));
    std::string body;
    format::put_fixed<uint8_t>(body, byte(0));
    format::put_fixed<uint8_t>(body, format::kFormatVersion);
    format::put_fixed<uint16_t>(body, 0);
    format::put_fixed<uint32_t>(body, static_cast<uint32_t>(size));
    format::put_fixed<uint64_t>(body, sequence++);
    format::put_fixed<uint64_t>(body, first_event);
    format::put_fixed<uint32_t>(body, byte(1));
    format::put_fixed<uint32_t>(body, 0);
    body += frame;
    first_event += byte(1);
    format::put_fixed<uint32_t>(file, format::kChunkMagic);
    format::put_fixed<uint32_t>(file, static_cast<uint32_t>(body.size()));
    format::put_fixed<uint64_t>(file, ms::kernels::xxh3(body.data(), body.size()));
    file += body;
    chunks.remove_prefix(4 + size);
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "rank_00000.mstrace", folder = fuzz::folder() / "json";
  const std::string_view text = fuzz::text_of(data, size);
  const bool is_file = text.substr(0, format::kFileMagic.size()) == format::kFileMagic;
  test::write_file(path, is_file ? std::string(text) : pack(text));
  fuzz::read_or_refuse([&] {
    const profile::Store store = profile::load({path}, {});
    profile::analyze(store, profile::sections::every());
    profile::convert_ranks(store, folder, profile::ExportFormat::kJson);
  });
  return 0;
}
