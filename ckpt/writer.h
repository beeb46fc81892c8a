// The trainer's asynchronous saver. save() only copies to staging memory; a writer per rank does the rest (HDF5 layout,
// hashing, writing, fsync), and rank 0 commits after the last writer has finished.
//
//   save()    takes the snapshot and hands it to the writer. No message between ranks.
//   status()  what this rank knows: is a save unfinished, has one failed
//   finish()  collective: waits until all saves are committed; throws on all ranks if one failed
//
// The writers of all ranks synchronise through files in the temporary directory (detail/save_job.h), never on a
// communicator: a save is committed while the trainer computes, whatever its ranks wait for. A failure anywhere (full
// disk, failed fsync, out of memory) fails the generation; its temporary directory is removed and earlier generations
// are untouched.
//
// The writer is a thread, or a process that outlives the trainer and still commits the last snapshot.
//
// A gathered save (Options::gather) sends the shards, in slices over the saver's own transport, to the ranks that write
// (detail/gather.h); the other ranks need no access to the directory.
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
  CheckpointInfo info;            // same on all ranks; rank 0's is written
  std::vector<ShardData> shards;  // of this rank; shards with replica_id != 0 are not written
};

// Which thread moves the messages of a gathered save.
enum class GatherProgress : uint8_t {
  kAuto,    // the writer thread if the transport allows it, else the trainer
  kWriter,  // the writer thread, while the trainer runs
  kTrainer  // callers of the saver, in core::Endpoint::progress: between layers and in waits
};
GatherProgress parse_gather_progress(std::string_view name);  // "auto", "thread", "main"; throws kInvalidArgument

struct GatherOptions {
  std::vector<int> writer_of;  // by rank: the rank that writes its shards; a writer names itself
  // Bytes of one message. A writer holds a slice for each rank it writes for, itself included, and one more; with
  // compress also a chunk of 8 MiB. The written files do not depend on it.
  int64_t slice_bytes = int64_t{40} << 20;
  GatherProgress progress = GatherProgress::kAuto;
};

class Saver {
 public:
  struct Options {
    std::filesystem::path root;  // created if absent; one saver at a time (lock file)
    bool async = true;           // false: save() writes the same bytes and commits before it returns
    std::string producer = "msuite";
    bool logs_commits = true;  // a line for each, from ranks that log
    int staging_buffers = 1;   // snapshots that can be in flight at once
    // Copy after save() has returned: the state may not change before before_update() has returned.
    bool lazy_snapshot = false;
    const std::atomic<int64_t>* state_version = nullptr;  // counts updates, to detect one that came too early
    std::optional<core::WritePath> write_path;            // nullopt: the fastest that works in root
    int64_t bytes_per_second = 0;                         // limit for a rank's writer; 0: none
    // Incremental saves: unchanged boxes of up to 8 MiB are linked, not written; every Nth save writes all. 0: off.
    int64_t full_every = 0;
    bool compress = false;                // byte shuffle and zstd: weights shrink by 1.2 (fp32), 1.5 (bf16)
    int compress_threads = 1;             // threads that compress: up to 32 MiB each, in addition to the staging memory
    int nice = 0;                         // of the writer
    std::vector<int> cpus;                // where the writer runs; empty: anywhere
    Retention retention;                  // applied after each commit, while the next save runs
    double timeout_s = 600;               // for a rank that never reports: fails the save, not the run
    std::optional<GatherOptions> gather;  // not with writer_command; comm then has all ranks of its endpoint
    // A program and arguments that call run_writer_process with the arguments appended: a process writes. Empty: a
    // thread.
    std::vector<std::string> writer_command;
    core::Arena* arena = nullptr;               // not owned; staging memory is counted here, tag ckpt
    core::ThreadPool* pool = nullptr;           // not owned; copies the snapshot; null: the calling thread does
    core::trace::Recorder* recorder = nullptr;  // not owned, may be null
  };

  // comm: over all ranks that save, used only by this object; not owned. Collective.
  // Waits for the writer process of a dead trainer that is still working in root (core/io/lock_file.h).
  // Throws (on all ranks) kIo if root cannot be created or another live process saves there, kUnsupported if the write
  // path does not work there or the transport does not let the writer thread send.
  Saver(core::Communicator& comm, Options options);
  // Waits for this rank's writer; an uncommitted save remains as a temporary directory, unless a process writes it.
  // Never throws.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Allocates and touches the staging memory for these shards, so that the first save() costs no more than the others.
  // Local. save() does it if this was not called.
  void reserve(std::span<const ShardData> shards);

  // Takes a snapshot, after waiting for a free staging buffer. When it returns, the request's memory may change (with
  // lazy_snapshot: when before_update() returns). Errors are reported by finish(). With async off it is collective and
  // includes finish().
  void save(const SaveRequest& request);
  // Call before the state changes: waits for a copy that is still running.
  void before_update();
  struct Status {
    bool unfinished = false;  // rank 0: a save is not committed; others: not written
    bool failed = false;      // one has failed since the last finish(), so finish() will throw
  };
  Status status() const;
  // Collective. Returns when no save is unfinished and the generations that a thread's commits replaced are removed.
  // Throws the error of the first save that failed, the same on all ranks; later saves are not affected.
  void finish();

  int64_t last_committed() const;           // iteration; -1: none. Rank 0 knows it at once, others after finish()
  std::filesystem::path last_path() const;  // its directory
  double last_blocking_seconds() const;     // of the last save(), excluding the wait for a buffer
  double last_wait_seconds() const;         // wait for a buffer in the last save()
  int64_t last_bytes() const;               // snapshot of this rank

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The main function of a writer process (Options::writer_command); arguments are those after the command's own.
int run_writer_process(const std::vector<std::string>& arguments);

}  // namespace ms::ckpt
