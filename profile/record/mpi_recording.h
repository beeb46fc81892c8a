// State of the preload library of `msprof record` (preload.h) in an MPI program: records calls and writes one native
// trace per rank. MPI itself is called by its profiling names (PMPI_*, MPI-3.1 chapter 14), which the program's calls
// do not use.
//
//   collective, message      communication of its group, from the call to its completion (a request: to the call that
//                            saw it complete)
//   time outside MPI         a kernel named "outside MPI", on the thread that called MPI_Init
//   every call by its name   a host span, at level1
//
// Environment variables choose folder, ranks and level (variables.h). An error here is one warning and never fails the
// program.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/trace/recorder.h"

namespace ms::profile {

// One operation as the program called it. Counts are elements of `type`; root and peer are ranks of `comm`, where
// MPI_PROC_NULL means no operation.
struct MpiOperation {
  const char* op = "";  // "allreduce", "send", ..; empty: a call that moves no data
  MPI_Comm comm = MPI_COMM_NULL;
  int64_t in_count = 0, out_count = 0;
  MPI_Datatype type = MPI_BYTE;
  int peer = MPI_ANY_SOURCE;  // of a message; the root of a rooted collective
  int tag = MPI_ANY_TAG;      // of a message
  int64_t sequence = 0;       // of a collective: number of earlier ones on the communicator (number())
};

class MpiRecording {
 public:
  static MpiRecording& instance();

  // Called by all ranks after MPI is initialised and before it is finalised: open and close the trace, and measure the
  // clocks against rank 0's.
  void begin();
  void end();
  bool active() const { return recorder_.active(); }

  // A new communicator, created by a call on `parent`. Its name is the same on all members: parent's name, the number
  // of communicators made from it before, and its first world rank.
  void add_communicator(MPI_Comm parent, MPI_Comm made);
  void forget_communicator(MPI_Comm comm);

  // Sets the sequence number of a collective. Must be called when the collective starts: members agree on that order.
  void number(MpiOperation& operation);
  // start_ns, end_ns: core::trace::now_ns(). status: of a completed receive, else null. fruitless: a poll that found
  // nothing; consecutive ones become one span without the time between them.
  void add_call(const char* name, int64_t start_ns, int64_t end_ns, bool fruitless);
  void add_operation(const MpiOperation& operation, int64_t start_ns, int64_t end_ns, const MPI_Status* status,
                     bool blocking);
  // A request created at start_ns that completes later; persistent: not started yet, and may be started many times.
  void post(MPI_Request request, const MpiOperation& operation, int64_t start_ns, bool persistent);
  void start(MPI_Request request, int64_t start_ns);
  // request: its value before the call that completed it.
  void complete(MPI_Request request, const MPI_Status* status, int64_t end_ns);
  void forget_request(MPI_Request request);

 private:
  struct Group {
    std::string name;
    std::vector<int> members;  // world ranks
    std::vector<int> peers;    // world ranks that messages go to: members, or the remote group
    int64_t sequence = 0, children = 0;
    std::unordered_map<int, std::string> of_tags;  // group names of messages, by group of tags
  };
  struct Posted {
    MpiOperation operation;
    int64_t start_ns = 0;  // 0: a persistent request that was not started
    bool persistent = false;
  };

  MpiRecording() = default;
  Group& group_of(MPI_Comm comm);  // requires mutex_
  const std::string& message_group(Group& group, int tag);
  void measure_clock();
  void end_polling();

  core::trace::Recorder recorder_;
  bool calls_ = false;  // level1
  std::mutex mutex_;
  std::unordered_map<MPI_Comm, Group> groups_;
  // FIFO per handle: Open MPI returns the same handle for all requests that complete immediately.
  std::unordered_map<MPI_Request, std::deque<Posted>> requests_;
};

// An MPI call of the program, from construction to destruction. Nested calls by MPI itself are not recorded.
class MpiCall {
 public:
  explicit MpiCall(const char* name) : MpiCall(name, {}) {}
  MpiCall(const char* name, const MpiOperation& operation);
  ~MpiCall();
  MpiCall(const MpiCall&) = delete;
  MpiCall& operator=(const MpiCall&) = delete;

  bool records() const { return records_; }
  int64_t start_ns() const { return start_ns_; }
  void set_status(const MPI_Status* status) { status_ = status; }  // of a receive; must outlive the call
  void set_fruitless(bool fruitless) { fruitless_ = fruitless; }

 private:
  const char* name_;
  MpiOperation operation_;
  const MPI_Status* status_ = nullptr;
  bool records_, fruitless_ = false;
  int64_t start_ns_ = 0;
};

}  // namespace ms::profile
