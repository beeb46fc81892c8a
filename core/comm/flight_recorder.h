// The flight recorder of a rank: its last communication operations, in a file that outlives the process. Recording one
// makes no system call and allocates nothing (except the first of a group), and takes some tens of nanoseconds.
//
// Names follow PyTorch's Flight Recorder (torch/csrc/distributed/c10d/FlightRecorder.hpp). The file is flight_file.h;
// flight_dump.h reads it, flight_diagnosis.h says which rank others wait for, `msprof flight` prints it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/comm/comm_op.h"
#include "core/comm/flight_file.h"
#include "core/comm/flight_folder.h"
#include "core/dtype.h"

namespace ms::core {

class FlightRecorder {
 public:
  struct Options {
    std::filesystem::path folder;  // one file per rank in it: rank_00003.flight
    int rank = 0, world_size = 1;
    int64_t capacity = 2000;  // operations
    uint64_t job = 0;         // any number that is the same on all ranks of the run
    bool remove_at_end = false;
  };
  FlightRecorder() = default;
  ~FlightRecorder();  // end()
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // Makes the file, in place of one of an earlier run. The folder exists. Throws kIo.
  void open(const Options& options);
  bool active() const { return header_ != nullptr; }
  // Keeps the lock of the folder until end().
  void hold(std::unique_ptr<FlightFolderLock> lock) { lock_ = std::move(lock); }
  const std::filesystem::path& folder() const { return options_.folder; }

  // The run ends as it should: the file says so, or is removed with its folder (remove_at_end), and the folder's lock
  // is released.
  void end() noexcept;
  // The run has failed, and the file stays. True for the first rank of this folder that calls it: the one that reports.
  // True if inactive.
  bool claim_report(std::string_view text) noexcept;

  // What an operation is, when it is posted.
  struct Post {
    CommOp op = CommOp::kAllreduce;
    DType dtype = DType::kFp32;
    uint8_t tag = 0;
    int32_t group = -1, peer = -1;
    int64_t sequence = 0, in_elements = 0, out_elements = 0, payload_bytes = 0, posted_ns = 0;
  };
  // Below: one thread at a time; only if active.
  // The index of a group, which is added to the file if it is new; -1 if there are too many.
  int32_t group(std::string_view name, int context, const std::vector<int>& world_ranks);
  uint64_t post(const Post& post);  // the number of the operation
  void complete(uint64_t number, int64_t started_ns, int64_t completed_ns);
  void wait_begins(uint64_t number, int64_t now_ns);
  void wait_ends(int64_t now_ns) {
    header_->waited_until_ns.store(now_ns, std::memory_order_relaxed);
    header_->waits_for.store(0, std::memory_order_release);
  }

  // What the following operations belong to. name: static.
  struct Phase {
    const char* name = "";
    int32_t microbatch = -1;
  };
  Phase phase() const { return phase_; }
  void set_phase(Phase phase) { phase_ = phase; }
  void set_iteration(int64_t iteration);

 private:
  flight::Record* slot(uint64_t number) const { return records_ + (number - 1) % options_capacity_; }
  void unmap() noexcept;

  Options options_;
  uint64_t options_capacity_ = 1;
  std::filesystem::path path_;
  flight::Header* header_ = nullptr;  // the mapping
  flight::Group* groups_ = nullptr;
  int32_t* ranks_ = nullptr;
  flight::Record* records_ = nullptr;
  std::unique_ptr<FlightFolderLock> lock_;  // null: another rank has it, or the folder is of this run alone
  Phase phase_;
  int64_t iteration_ = 0;
};

// Sets the phase for its lifetime; recorder may be null or inactive.
class FlightPhase {
 public:
  FlightPhase(FlightRecorder* recorder, const char* name, int32_t microbatch = -1) : recorder_(recorder) {
    if (recorder_ == nullptr) return;
    before_ = recorder_->phase();
    recorder_->set_phase({name, microbatch});
  }
  ~FlightPhase() {
    if (recorder_ != nullptr) recorder_->set_phase(before_);
  }
  FlightPhase(const FlightPhase&) = delete;
  FlightPhase& operator=(const FlightPhase&) = delete;

 private:
  FlightRecorder* recorder_;
  FlightRecorder::Phase before_;
};

}  // namespace ms::core
