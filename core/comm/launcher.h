// Detects processes that an MPI launcher started, and loads MPI only for them: a single process then runs on machines
// without MPI.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/comm/transport.h"

namespace ms::core {

// True if a launcher (mpirun, srun) started this process as one of several ranks, or requested MPI.
bool launched_by_mpi();

// What is wrong if srun started this process as one of several tasks, but without MPI's variables, so that each would
// train alone; "" otherwise.
std::string explain_lonely_task();

// True if the parent process already is this rank: a script under mpirun that calls a program, perhaps on one rank
// only, where MPI_Init would wait for the other ranks. (With `exec` in the script, the program itself is the rank.)
bool started_by_a_rank();

// Path of lib/msuite/<name> beside the program's folder.
std::filesystem::path library_of_ours(std::string_view name);

class RankSession {
 public:
  virtual ~RankSession() = default;
  virtual std::unique_ptr<Transport> transport() const = 0;  // over all ranks; must not outlive the session
  virtual int local_size() const = 0;                        // ranks on this machine
  // Ends the job for errors that ranks cannot agree on: a silent peer, or an exception outside a phase. Does not
  // return.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

// Which threads will call MPI: one at a time, or several at once.
enum class MpiThreads : uint8_t { kOne, kAny };

// Creates the MpiSession (mpi_transport.h) of libmsuite_mpi.so. Throws kUnsupported if it cannot be loaded, which a
// static program (MS_STATIC) never can, or was compiled with another interface.
std::unique_ptr<RankSession> load_mpi_session(MpiThreads threads = MpiThreads::kOne);

}  // namespace ms::core
