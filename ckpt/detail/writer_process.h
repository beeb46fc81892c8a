// A process that writes checkpoints for a rank and outlives it: the snapshot lies in shared memory, and a job that was
// submitted is finished, commit included, even if the trainer dies.
//
// It is started before it is needed, in a session of its own, so that signals that end the job do not reach it. Of the
// job's descriptors it keeps only those given to it: the socket, the shared memory, and rank 0's lock of the root.
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
    std::vector<std::string> command;  // a program and its arguments; ours are appended: see run_writer_process
    int buffers = 1;                   // number of shared memory buffers
    int lock_descriptor = -1;          // inherited; -1: none
    int nice = 0;
    std::vector<int> cpus;
  };
  explicit WriterProcess(const Options& options);  // throws kIo
  // The process finishes its jobs; waits for it only if it has nothing left to do.
  ~WriterProcess();
  WriterProcess(const WriterProcess&) = delete;
  WriterProcess& operator=(const WriterProcess&) = delete;

  int shared_memory(int buffer) const { return memory_[static_cast<size_t>(buffer)]; }

  // Submits a job whose data lies in this buffer. When it returns, the process has received the whole job. Throws kIo.
  void submit(const SaveJob& job, int buffer, const std::byte* base);
  // The next outcome: for each job that of write_part, then on rank 0 that of commit_reported. Throws kIo if the
  // process has ended.
  Outcome next_outcome();
  // Makes a running next_outcome() throw; the process continues alone.
  void hang_up();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::vector<int> memory_;
  std::atomic<int> unanswered_{0};  // outcomes not yet received
};

}  // namespace ms::ckpt
