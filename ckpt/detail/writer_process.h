// A process that writes checkpoints for a rank and outlives it: the snapshot lies in shared memory, and what has been
// handed over is finished, commit included, whatever becomes of the trainer.
//
// Started before it is needed, in a session of its own, so that what ends the job does not end it. It holds none of the
// job's descriptors but those given to it: the socket, the shared memory, and rank 0's lock of the root.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <vector>

#include "ckpt/detail/save_job.h"
#include "ckpt/detail/staging.h"

namespace ms::ckpt {

class WriterProcess {
 public:
  struct Options {
    std::vector<std::string> command;  // a program, and arguments behind which it takes ours: see run_writer_process
    int buffers = 1;                   // of shared memory
    int lock_descriptor = -1;          // inherited; -1: none
    int nice = 0;
    std::vector<int> cpus;
  };
  explicit WriterProcess(const Options& options);  // throws kIo
  // Lets the process finish what it has, without waiting for it unless it has nothing left.
  ~WriterProcess();
  WriterProcess(const WriterProcess&) = delete;
  WriterProcess& operator=(const WriterProcess&) = delete;

  int shared_memory(int buffer) const { return memory_[static_cast<size_t>(buffer)]; }

  // Hands a job over whose data lies in this buffer. When it returns the process has all of it. Throws kIo.
  void submit(const SaveJob& job, int buffer, const std::byte* base);
  // The next outcome: of each job write_part's, then on rank 0 commit_reported's. Throws kIo if the process has ended.
  std::string next_outcome();
  // Makes a next_outcome() under way throw; the process goes on alone.
  void hang_up();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::vector<int> memory_;
  std::atomic<int> unanswered_{0};  // outcomes still to come
};

}  // namespace ms::ckpt
