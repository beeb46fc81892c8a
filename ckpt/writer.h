// The asynchronous saver of the trainer: save() costs a copy into staging memory; a writer per rank does the rest
// (HDF5 layout, hashing, writing, fsync), and the last to finish is followed by rank 0's commit.
//
//   save()    takes the snapshot and hands it to the writer. No message between ranks.
//   status()  what this rank knows: is a save unfinished, has one failed
//   finish()  collective: until all saves are committed, or throws, on all ranks, why one was not
//
// The ranks' writers meet in the temporary directory (detail/save_job.h), never on a communicator: a save is committed
// while the trainer computes, whatever its ranks are waiting for. A failure anywhere (a full disk, a failed fsync,
// memory) fails the generation; its temporary directory is removed and earlier generations are untouched.
//
// The writer is a thread, or a process that outlives the trainer and still commits the last snapshot.
//
// A gathered save (Options::gather) is the other way round: shards travel, in slices over a transport of the saver's
// own, to the ranks that write (detail/gather.h); the other ranks need not see the directory.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/retention.h"
#include "ckpt/shard_data.h"
#include "ckpt/source.h"
#include "core/arena.h"
#include "core/comm/communicator.h"
#include "core/io/bulk_writer.h"
#include "core/thread_pool.h"
#include "core/trace/recorder.h"

namespace ms::ckpt {

struct SaveRequest {
  CheckpointInfo info;            // the same on all ranks; rank 0's is written
  std::vector<ShardData> shards;  // of this rank; those with replica_id != 0 are not written
};

// Who moves the messages of a gathered save.
enum class GatherProgress : uint8_t {
  kAuto,    // the writer thread where the transport allows that, else the trainer
  kWriter,  // the writer thread: while the trainer does whatever it does
  kTrainer  // whoever calls the saver, in core::Endpoint::progress: between layers and in waits
};
GatherProgress parse_gather_progress(std::string_view name);  // "auto", "thread", "main"; throws kInvalidArgument

struct GatherOptions {
  std::vector<int> writer_of;  // by rank: who writes its shards; itself for one that writes
  // Bytes of one message. A writer holds a slice for each rank it writes for, itself among them, and one more;
  // with compress a chunk of 8 MiB besides. What is written does not depend on it.
  int64_t slice_bytes = int64_t{40} << 20;
  GatherProgress progress = GatherProgress::kAuto;
};

class Saver {
 public:
  struct Options {
    std::filesystem::path root;  // created if absent; one saver at a time (lock file)
    bool async = true;           // false: save() writes the same bytes, and commits, before it returns
    std::string producer = "msuite";
    int staging_buffers = 1;  // snapshots that can be under way at once
    // Copy during what follows save(), not in it: the state may not change before before_update() has returned.
    bool lazy_snapshot = false;
    const std::atomic<int64_t>* state_version = nullptr;  // counts updates, to find out that one came too early
    std::optional<core::WritePath> write_path;            // nothing: the fastest that works in root
    int64_t bytes_per_second = 0;                         // of a rank's writer; 0: no limit
    // Incremental saves: boxes of up to 8 MiB that are as they were are linked, not written; every Nth save writes all.
    int64_t full_every = 0;
    bool compress = false;                // byte shuffle and zstd: weights shrink by 1.2 (fp32), 1.5 (bf16)
    int compress_threads = 1;             // that do it at a time: up to 32 MiB for each, beside the staging memory
    int nice = 0;                         // of the writer
    std::vector<int> cpus;                // where the writer runs; empty: anywhere
    Retention retention;                  // applied after each commit, beside the next save
    double timeout_s = 600;               // for a rank that never reports: ends the save, not the run
    std::optional<GatherOptions> gather;  // not with writer_command; comm is then over all ranks of its endpoint
    // A program and its arguments that call run_writer_process with those behind: a process writes. Empty: a thread.
    std::vector<std::string> writer_command;
    core::Arena* arena = nullptr;               // not owned; staging memory is counted here, tag ckpt
    core::ThreadPool* pool = nullptr;           // not owned; copies the snapshot; null: the calling thread does
    core::trace::Recorder* recorder = nullptr;  // not owned, may be null
  };

  // comm: over all ranks that save, for this object's use only; not owned. Collective.
  // Waits for the writer process of a dead trainer that is still at work in root (core/io/lock_file.h).
  // Throws (on all ranks) kIo if root cannot be made or another live process saves there, kUnsupported if the write
  // path does not work there, or the writer thread may not send.
  Saver(core::Communicator& comm, Options options);
  // Waits for this rank's writer; what is not committed then is left as a temporary directory, unless a process writes.
  // Never throws.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Allocates and touches the staging memory for these shards, so that the first save() costs no more than the others.
  // Local. save() does it where it was not done.
  void reserve(std::span<const ShardData> shards);

  // Takes a snapshot, after waiting for a free staging buffer. When it returns, the request's memory may change (with
  // lazy_snapshot: when before_update() does). What goes wrong is finish()'s to tell. With async off it is collective,
  // and finish() is part of it.
  void save(const SaveRequest& request);
  // Before the state changes: waits for a copy under way.
  void before_update();
  struct Status {
    bool unfinished = false;  // rank 0: a save is not committed; others: not written
    bool failed = false;      // one has failed since the last finish(); that is, finish() will throw
  };
  Status status() const;
  // Called by all ranks: returns when no save is unfinished, and what a thread committed has replaced is gone. Throws
  // the error of the first that failed, the same on all ranks; those after it count.
  void finish();

  int64_t last_committed() const;           // iteration; rank 0 knows it at once, others after finish(); -1: none
  std::filesystem::path last_path() const;  // directory of it
  double last_blocking_seconds() const;     // of the last save(), waiting for a buffer left out
  double last_wait_seconds() const;         // of the last save(): for a buffer
  int64_t last_bytes() const;               // snapshot of this rank

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The main of a writer process (Options::writer_command): arguments are those behind the command's own.
int run_writer_process(const std::vector<std::string>& arguments);

}  // namespace ms::ckpt
