#include "profile/report/output_file.h"

#include <isa-l/igzip_lib.h>
#include <unistd.h>
#include <zstd.h>

#include <cstring>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/io/file.h"

namespace ms::profile {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr int kZstdLevel = 3;
constexpr int kGzipLevel = 1;  // ISA-L's 1 compresses traces like zlib's 3 to 4, at ten times the speed

}  // namespace

struct OutputFile::Impl {
  std::string path, partial;
  Compression compression = Compression::kNone;
  core::File file;
  int64_t offset = 0;
  bool finished = false;
  std::string text;  // not yet compressed
  std::vector<std::byte> packed = std::vector<std::byte>(kBufferBytes);
  std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> zstd{nullptr, ZSTD_freeCCtx};
  isal_zstream gzip;
  std::vector<uint8_t> gzip_level;

  void put(std::span<const std::byte> bytes) {
    file.pwrite(bytes, offset);
    offset += static_cast<int64_t>(bytes.size());
  }

  void flush(bool last) {
    switch (compression) {
      case Compression::kNone:
        put(std::as_bytes(std::span(text)));
        break;
      case Compression::kGzip:
        flush_gzip(last);
        break;
      case Compression::kZstd:
        flush_zstd(last);
        break;
    }
    text.clear();
  }

  void flush_gzip(bool last) {
    gzip.next_in = reinterpret_cast<uint8_t*>(text.data());
    gzip.avail_in = static_cast<uint32_t>(text.size());
    gzip.end_of_stream = last ? 1 : 0;
    do {
      gzip.next_out = reinterpret_cast<uint8_t*>(packed.data());
      gzip.avail_out = static_cast<uint32_t>(packed.size());
      const int status = isal_deflate(&gzip);
      MS_CHECK(status == COMP_OK, "isal_deflate ", status);
      put(std::span(packed).first(packed.size() - gzip.avail_out));
    } while (gzip.avail_out == 0 || (last && gzip.internal_state.state != ZSTATE_END));
  }

  void flush_zstd(bool last) {
    ZSTD_inBuffer in{text.data(), text.size(), 0};
    size_t left = 0;
    do {
      ZSTD_outBuffer out{packed.data(), packed.size(), 0};
      left = ZSTD_compressStream2(zstd.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
      MS_CHECK(ZSTD_isError(left) == 0, "ZSTD_compressStream2: ", ZSTD_getErrorName(left));
      put(std::span(packed).first(out.pos));
    } while (last ? left != 0 : in.pos < in.size);
  }
};

OutputFile::OutputFile(std::string path, Compression compression) : impl_(std::make_unique<Impl>()) {
  impl_->path = std::move(path);
  impl_->partial = impl_->path + ".tmp";
  impl_->compression = compression;
  impl_->file = core::File::create(impl_->partial);
  if (compression == Compression::kGzip) {
    isal_deflate_init(&impl_->gzip);
    impl_->gzip.gzip_flag = IGZIP_GZIP;
    impl_->gzip.level = kGzipLevel;
    impl_->gzip_level.resize(ISAL_DEF_LVL1_DEFAULT);
    impl_->gzip.level_buf = impl_->gzip_level.data();
    impl_->gzip.level_buf_size = static_cast<uint32_t>(impl_->gzip_level.size());
  } else if (compression == Compression::kZstd) {
    impl_->zstd.reset(ZSTD_createCCtx());
    MS_CHECK(impl_->zstd != nullptr, "ZSTD_createCCtx");
    ZSTD_CCtx_setParameter(impl_->zstd.get(), ZSTD_c_compressionLevel, kZstdLevel);
    ZSTD_CCtx_setParameter(impl_->zstd.get(), ZSTD_c_checksumFlag, 1);
  }
}

OutputFile::~OutputFile() {
  if (!impl_->finished) ::unlink(impl_->partial.c_str());
}

void OutputFile::write(std::string_view text) {
  impl_->text += text;
  if (impl_->text.size() >= kBufferBytes) impl_->flush(false);
}

void OutputFile::finish() {
  impl_->flush(true);
  impl_->file.fsync();
  impl_->file.close();
  core::rename_durably(impl_->partial, impl_->path);
  impl_->finished = true;
}

}  // namespace ms::profile
