// Writes one rank_NNNNN.h5: laid out by HDF5, filled with pwrite, hashed while writing (FORMAT.md).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "ckpt/detail/chunk_index.h"
#include "ckpt/detail/cut_cells.h"
#include "ckpt/logical_hash.h"
#include "core/io/bulk_writer.h"
#include "core/io/chunk_codec.h"
#include "core/io/file.h"
#include "core/io/hdf5.h"
#include "core/sharded_tensor.h"
#include "core/trace/recorder.h"

namespace ms::ckpt {

inline constexpr int64_t kPackedBelow = 65536;  // bytes; smaller boxes share a dataset
inline constexpr int64_t kPackedAlignment = 64;

struct BoxRecord {
  core::ShardedTensor tensor;
  std::string dataset;
  int64_t at = 0;                    // offset of the first byte in the file
  std::vector<uint64_t> chunk_xxh3;  // per kChunkBytes, the last one may be less
  bool compressed = false;           // `at` is then the offset of its entries in /chunk_index
  std::vector<ChunkEntry> stored;    // these entries, if known
};

// Description of a file that has been written.
struct RankFileRecord {
  std::string name;
  int64_t bytes = 0;
  uint64_t xxh3 = 0;    // structure hash, see hash_structure
  bool linked = false;  // hard link to an earlier save's file: it may hold more than these boxes
  std::vector<BoxRecord> boxes;
  std::vector<LogicalPartial> logical;  // one per box
  std::string cut_cells;                // name of the file with their pieces (cut_cells.h); empty if there is none
};

std::string rank_file_name(int rank);  // "rank_00000.h5"
std::string cut_cells_name(int rank);  // "rank_00000.cells"

// Hash of everything in the file except the boxes' data: for each maximal run of other bytes its begin and length and
// the XXH3 of every MiB of it, as little-endian u64; the result is the XXH3 of that list.
uint64_t hash_structure(const core::File& file, const std::vector<BoxRecord>& boxes);

class RankFile {
 public:
  struct Options {
    core::WritePath write_path = core::WritePath::kBuffered;
    int64_t bytes_per_second = 0;              // 0: no limit
    bool compress = false;                     // boxes that have their own dataset
    int64_t cut_cells_bytes = kCutCellsBytes;  // memory limit; more go to the file cut_cells_name(rank)
    std::stop_source stop;                     // a request ends waiting writes; a failed write makes one
  };
  // Creates directory/rank_file_name(rank) with room for these boxes; none may be empty. Throws kIo, also if the disk
  // is too small, and kUnsupported for a dtype.
  RankFile(const std::string& directory, int rank, std::vector<core::ShardedTensor> boxes, const Options& options);

  // Writes the elements [first, first + count) of box `box`, one chunk: first is a multiple of kChunkBytes.
  // Thread-safe. With compress the file stores chunks in the order of boxes, and a write waits until the earlier ones
  // are placed; so calls must start in that order.
  void write(int32_t box, int64_t first, int64_t count, const std::byte* data);

  // Writes the first data.size() boxes, each from its own dense memory, which must not change before finish().
  // `threads` threads hash and compress chunks; the calling thread hashes what is not compressed. Call before any other
  // write.
  void write_all(std::span<const std::byte* const> data, int threads);

  // Sets the hashes of a box if they are known (from the snapshot, or from the rank that holds it). It is not hashed
  // again.
  void set_hashes(int32_t box, std::vector<uint64_t> chunk_xxh3, LogicalPartial logical);
  using Batch = core::BulkWriter::Batch;
  bool compressed(int32_t box) const { return record_.boxes[static_cast<size_t>(box)].compressed; }
  core::BulkWriter& bulk() { return *writer_; }  // for batches, which must be destroyed before finish()
  // Writes bytes, starting at `begin`, of a box whose hashes are set. They must stay valid until the batch has been
  // waited for. For a compressed box: whole chunks, in the order of the file, which need not stay valid.
  void write_piece(int32_t box, int64_t begin, std::span<const std::byte> bytes, Batch& batch);

  // Completes the file's hashes and fsyncs it. Call once, after all writes.
  RankFileRecord finish(core::trace::Recorder* recorder);

 private:
  struct Packed {
    std::string dataset;
    std::vector<size_t> boxes;
  };
  struct ChunkPlace {
    size_t box;
    int64_t chunk;
  };
  void lay_out();
  void write_compressed(std::span<const std::byte* const> data, int threads);
  void write(int32_t box, int64_t first, int64_t count, const std::byte* data, core::BulkWriter::Batch& batch);
  void hash(BoxRecord& box, int64_t first, int64_t count, const std::byte* data);
  core::ChunkEncoder::Stored encode(const BoxRecord& box, std::span<const std::byte> values);
  void store(size_t place, const core::ChunkEncoder::Stored& stored, core::BulkWriter::Batch& batch);

  std::string path_;
  int rank_;
  core::File file_;
  std::optional<core::BulkWriter> writer_;
  std::optional<core::BulkWriter::Batch> later_;  // of write_all: writes of uncompressed boxes
  RankFileRecord record_;
  std::vector<bool> hashed_;  // per box: its hashes are known
  CutCellsWriter cut_cells_;
  std::vector<Packed> packed_;
  std::mutex mutex_;

  // Compressed boxes.
  bool compress_ = false;
  std::stop_source stop_;
  std::optional<core::H5File> h5_;   // open until all chunks are written
  int64_t chunk_index_at_ = 0;       // offset of /chunk_index
  std::vector<ChunkPlace> chunks_;   // in the order of the file
  std::vector<size_t> first_chunk_;  // per box, index into chunks_
  size_t next_chunk_ = 0;            // the next chunk to be placed
  std::condition_variable_any turn_;
};

}  // namespace ms::ckpt
