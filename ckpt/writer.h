// The asynchronous saver of the trainer: save() costs a copy into staging memory, one writer thread per rank does the
// rest (HDF5 layout, hashing, pwrite, fsync), and the ranks agree by small messages at step boundaries.
//
//   save()   snapshot (memcpy), hand over to the writer thread
//   poll()   at every step boundary, by all ranks: one small nonblocking allreduce is kept in flight while a save is
//            unfinished; when every writer is done the reports go to rank 0, whose writer thread commits
//   finish() until committed
//
// The writer thread never touches the communicator, so MPI_THREAD_FUNNELED is enough. A failure anywhere (a full disk,
// a failed fsync, memory) fails the generation on all ranks at the same poll(), save() or finish(); the temporary
// directory is removed and earlier generations are untouched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/source.h"
#include "core/arena.h"
#include "core/comm/communicator.h"
#include "core/sharded_tensor.h"
#include "core/thread_pool.h"
#include "core/trace/recorder.h"

namespace ms::ckpt {

struct ShardData {
  core::ShardedTensor meta;
  const std::byte* data = nullptr;  // dense, row-major, meta.local_shape of meta.dtype; not owned
};

struct SaveRequest {
  CheckpointInfo info;            // the same on all ranks; rank 0's is written
  std::vector<ShardData> shards;  // of this rank; those with replica_id != 0 are not written
};

class Saver {
 public:
  struct Options {
    std::filesystem::path root;  // created if absent; one saver at a time (lock file)
    bool async = true;           // false: save() writes the same bytes, and commits, before it returns
    std::string producer = "msuite";
    core::Arena* arena = nullptr;               // not owned; staging memory comes from here, tag ckpt
    core::ThreadPool* pool = nullptr;           // not owned; copies the snapshot; null: the calling thread does
    core::trace::Recorder* recorder = nullptr;  // not owned, may be null
  };

  // comm: over all ranks that save, for this object's use only; not owned. Collective.
  // Throws (on all ranks) kIo if root cannot be made or another live process saves there.
  Saver(core::Communicator& comm, Options options);
  // Waits for the local writer; an uncommitted generation is left as a temporary directory. Never throws.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Allocates and touches the staging memory for these shards, so that the first save() costs no more than the others.
  // Local. save() does it where it was not done.
  void reserve(std::span<const ShardData> shards);

  // Called by all ranks at a step boundary. First waits for an unfinished save (and throws its error). When it returns,
  // the request's memory may change. Throws the agreed error, the same on all ranks.
  void save(const SaveRequest& request);
  // Called by all ranks at every step boundary; costs nothing when no save is unfinished. Throws the agreed error.
  void poll();
  // Called by all ranks: returns when no save is unfinished. Throws the agreed error.
  void finish();

  bool pending() const;
  int64_t last_committed() const;                  // iteration; -1 if none by this object
  const std::filesystem::path& last_path() const;  // directory of it
  double last_blocking_seconds() const;            // of the last save(), waiting for the one before left out
  double last_wait_seconds() const;                // of the last save(): for the one before
  int64_t last_bytes() const;                      // snapshot of this rank

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::ckpt
