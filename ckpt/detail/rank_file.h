// One rank_NNNNN.h5: laid out by HDF5, filled by pwrite, hashed while writing (FORMAT.md).
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
  std::vector<uint64_t> chunk_xxh3;  // of each kChunkBytes, the last one shorter
  bool compressed = false;           // `at` is then that of its entries in /chunk_index
  std::vector<ChunkEntry> stored;    // these entries, where they are known
};

// What is known of a file that has been written.
struct RankFileRecord {
  std::string name;
  int64_t bytes = 0;
  uint64_t xxh3 = 0;    // structure hash, see hash_structure
  bool linked = false;  // of an earlier save: it may hold more than these boxes
  std::vector<BoxRecord> boxes;
  std::vector<LogicalPartial> logical;  // of each box
  std::string cut_cells;                // name of the file that has pieces of them (cut_cells.h), if there is one
};

std::string rank_file_name(int rank);  // "rank_00000.h5"
std::string cut_cells_name(int rank);  // "rank_00000.cells"

// Hash of everything in the file but the boxes' data: for each maximal run of other bytes its begin and length and the
// XXH3 of every MiB of it, as little-endian u64, and XXH3 over that list.
uint64_t hash_structure(const core::File& file, const std::vector<BoxRecord>& boxes);

class RankFile {
 public:
  struct Options {
    core::WritePath write_path = core::WritePath::kBuffered;
    int64_t bytes_per_second = 0;              // 0: as fast as it goes
    bool compress = false;                     // boxes with a dataset of their own
    int64_t cut_cells_bytes = kCutCellsBytes;  // in memory; more go into a file beside it, cut_cells_name(rank)
    std::stop_source stop;  // whoever requests it ends the writes that wait; so does a write that fails
  };
  // Creates directory/rank_file_name(rank) with room for these boxes, all with elements. Throws kIo, also if the disk
  // is too small, kUnsupported for a dtype.
  RankFile(const std::string& directory, int rank, std::vector<core::ShardedTensor> boxes, const Options& options);

  // The elements [first, first + count) of box `box`, one chunk: first a multiple of kChunkBytes. Thread-safe. With
  // compress the file has its chunks in the order of boxes: a write waits until those before it have their places, so
  // calls have to begin in that order.
  void write(int32_t box, int64_t first, int64_t count, const std::byte* data);

  // The first data.size() boxes, each from its own dense memory, which stays as it is until finish(). Chunks are hashed
  // and compressed by so many threads at a time; what does not compress is hashed by the calling one. Before any other.
  void write_all(std::span<const std::byte* const> data, int threads);

  // A box whose hashes are known: the snapshot took them, or another rank that holds it. It is not hashed any more.
  void set_hashes(int32_t box, std::vector<uint64_t> chunk_xxh3, LogicalPartial logical);
  using Batch = core::BulkWriter::Batch;
  bool compressed(int32_t box) const { return record_.boxes[static_cast<size_t>(box)].compressed; }
  core::BulkWriter& bulk() { return *writer_; }  // for batches, which must be gone before finish()
  // Bytes from `begin` on of such a box that another rank holds; they must stay until the batch has been waited for. Of
  // a compressed one whole chunks, in the order of the file, which do not have to stay.
  void write_piece(int32_t box, int64_t begin, std::span<const std::byte> bytes, Batch& batch);

  // Completes the file's hashes, fsyncs it. Once, when everything has been written.
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
  std::optional<core::BulkWriter::Batch> later_;  // of write_all: what is not compressed
  RankFileRecord record_;
  std::vector<bool> hashed_;  // each box: its hashes are known
  CutCellsWriter cut_cells_;
  std::vector<Packed> packed_;
  std::mutex mutex_;

  // Compressed boxes.
  bool compress_ = false;
  std::stop_source stop_;
  std::optional<core::H5File> h5_;   // open while chunks come
  int64_t chunk_index_at_ = 0;       // of /chunk_index
  std::vector<ChunkPlace> chunks_;   // in the order of the file
  std::vector<size_t> first_chunk_;  // of each box, in chunks_
  size_t next_chunk_ = 0;            // the one to be placed
  std::condition_variable_any turn_;
};

}  // namespace ms::ckpt
