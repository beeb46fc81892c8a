// Writes the files of a result whose layout is known in advance; the sinks of all foreign formats use it.
//
// Files are written by position, in any order, by several threads, past the page cache where the system allows it
// (core/io/placed_file.h), in a staging directory next to the result (core/io/result_folder.h). Each file is created by
// its first write and made durable after its last, so few are open at a time. Writes are recorded with hashes
// (core/io/write_notes.h), so that a later attempt at the same job keeps data that still has its hash.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/shard_table.h"
#include "core/io/bulk_writer.h"
#include "core/io/placed_file.h"
#include "core/io/result_folder.h"
#include "core/io/write_notes.h"
#include "kernels/checksum.h"

namespace ms::convert {

struct WriteOptions {
  std::optional<core::WritePath> write_path;  // nullopt: the fastest that works there
  std::string job;      // identifies the source and all options that affect values; empty: attempts are never continued
  bool resume = false;  // keep what an earlier attempt at the same job wrote; if interrupted, keep what was written
};

// Hashes what determines the bytes of a result besides the values of its source.
class LayoutHash {
 public:
  void add(std::string_view text);
  void add(int64_t number) { hash_.update(&number, sizeof number); }
  void add(const ckpt::ShardTable& targets);
  uint64_t value() const { return hash_.digest(); }

 private:
  kernels::Xxh3 hash_;
};

class PlacedResult {
 public:
  struct FileSpec {
    std::string path;  // relative to the result: "mp_rank_00/model_optim_rng.pt"
    int64_t size_bytes = 0;
    int64_t parts = 0;  // in any unit: done() for all of them finishes the file; 0: commit() does
  };

  PlacedResult(std::filesystem::path folder, WriteOptions options);
  // Without commit() everything written is removed, unless it is to be resumed.
  ~PlacedResult();

  // Takes the lock and creates the staging directory and the folders of the files. layout: of the sink, without the
  // files. Throws kIo if another process is writing the folder or space is insufficient, kUnsupported if the write path
  // does not work there.
  void begin(std::vector<FileSpec> files, LayoutHash&& layout);

  // Called for each file when it is opened, before any other write; may be empty.
  std::function<void(size_t file, core::PlacedFile& placed)> opened;

  // Thread-safe on disjoint ranges, like all members below. Throws kIo.
  void write(size_t file, std::span<const std::byte> bytes, int64_t offset);
  // Returns whether an earlier attempt wrote `bytes.size()` bytes in one call at this offset and the data is intact; if
  // so, reads it into `bytes`.
  bool keep(size_t file, std::span<std::byte> bytes, int64_t offset);
  bool may_keep() const { return notes_ != nullptr && notes_->has_earlier(); }
  // Reports that `parts` parts of the file are written; after the last one the file is made durable and closed.
  void done(size_t file, int64_t parts);

  // Writes a small file. Only between the last done() and commit().
  void write_text(const std::string& path, std::string_view text);
  // Finishes the files without parts and moves everything into the folder. last: entries that are moved last, in this
  // order, if the folder existed before.
  void commit(const std::vector<std::string>& last = {});

 private:
  struct Output {
    FileSpec spec;
    std::unique_ptr<core::PlacedFile> file;
    std::once_flag begun;
    std::atomic<int64_t> remaining{0};  // parts
  };
  Output& open(size_t file);
  void finish(size_t file);
  void remove_unknown_files() const;

  std::filesystem::path folder_;
  WriteOptions options_;
  core::WritePath write_path_ = core::WritePath::kBuffered;
  std::unique_ptr<core::ResultFolder> result_;
  std::unique_ptr<core::WriteNotes> notes_;
  std::deque<Output> outputs_;
  bool committed_ = false;
};

}  // namespace ms::convert
