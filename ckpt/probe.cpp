#include "ckpt/probe.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/manifest.h"
#include "core/error.h"
#include "core/io/aligned_buffer.h"
#include "core/io/chunk_codec.h"
#include "core/io/file.h"
#include "core/thread_pool.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using core::cat;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Piece {
  int32_t shard = 0;
  core::Dims extent;  // the box starts at index 0 of the shard
  int64_t bytes = 0;
};

// Leading rows, at most a chunk, of the largest shards, spaced evenly over the list.
std::vector<Piece> pieces_of(const ShardTable& shards) {
  std::vector<int32_t> large;
  int64_t most = 0;
  for (size_t i = 0; i < shards.size(); ++i) most = std::max(most, std::min(shards.size_bytes(i), kChunkBytes));
  for (size_t i = 0; i < shards.size(); ++i) {
    if (most > 0 && shards.size_bytes(i) >= most) large.push_back(static_cast<int32_t>(i));
  }
  const size_t step = std::max<size_t>(1, large.size() / (kProbeBytes / kChunkBytes));
  std::vector<Piece> pieces;
  for (size_t i = 0; i < large.size() && pieces.size() < kProbeBytes / kChunkBytes; i += step) {
    const auto shard = static_cast<size_t>(large[i]);
    Piece piece{large[i], shards.extents(shard), shards.size_bytes(shard)};
    const int64_t row_bytes = piece.extent.empty() ? piece.bytes : piece.bytes / piece.extent[0];
    if (piece.bytes > kChunkBytes && !piece.extent.empty()) {
      piece.extent[0] = std::max<int64_t>(1, kChunkBytes / row_bytes);
      piece.bytes = piece.extent[0] * row_bytes;
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

double time_writing(const fs::path& folder, std::optional<core::WritePath> wanted) {
  std::error_code error;
  fs::path place = fs::absolute(folder);
  while (!fs::is_directory(place, error) && place.has_relative_path()) place = place.parent_path();
  const core::WritePath path = core::choose_write_path(place.string(), wanted).path;
  core::AlignedBuffer buffer(static_cast<size_t>(kChunkBytes));
  std::memset(buffer.data(), 0x5a, buffer.size_bytes());
  const std::string name = (place / cat(core::kProbePrefix, ::getpid())).string();
  const core::File file = core::File::create(name);
  const auto remove = [&](const core::File*) { ::unlink(name.c_str()); };
  const std::unique_ptr<const core::File, decltype(remove)> removed(&file, remove);
  const auto start = Clock::now();
  file.preallocate(kProbeBytes);
  core::BulkWriter writer(file, path);
  core::BulkWriter::Batch batch(writer);
  for (int64_t at = 0; at < kProbeBytes; at += kChunkBytes) {
    writer.submit({buffer.data(), buffer.size_bytes()}, at, batch);
  }
  writer.wait(batch);
  file.fsync();
  return seconds_since(start);
}

}  // namespace

double ProbeReport::seconds_for(int64_t bytes) const {
  const double rate = write_bytes_per_s > 0 ? std::min(read_bytes_per_s, write_bytes_per_s) : read_bytes_per_s;
  return rate > 0 ? static_cast<double>(bytes) / rate : 0;
}

ProbeReport probe(Source& source, const fs::path& folder, const ProbeOptions& options) {
  const ShardTable& shards = source.shards();
  const std::vector<Piece> pieces = pieces_of(shards);
  ProbeReport report;
  for (const Piece& piece : pieces) report.bytes_read += piece.bytes;
  const auto start = Clock::now();
  const auto read = [&](const Piece& piece) {
    core::AlignedBuffer values(static_cast<size_t>(piece.bytes));
    source.read(piece.shard, core::Dims(piece.extent.size(), 0), piece.extent, values.data());
    if (!options.compress) return;
    const auto item = core::size_of(shards.dtype_of(static_cast<size_t>(piece.shard)));
    core::ChunkEncoder().encode({values.data(), values.size_bytes()}, values.size_bytes(), static_cast<int>(item));
  };
  core::ThreadPool(options.threads)
      .parallel_for(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) read(pieces[static_cast<size_t>(i)]);
      });
  report.read_bytes_per_s = static_cast<double>(report.bytes_read) / seconds_since(start);
  if (folder.empty()) return report;
  report.write_bytes_per_s = static_cast<double>(kProbeBytes) / time_writing(folder, options.write_path);
  return report;
}

}  // namespace ms::ckpt
