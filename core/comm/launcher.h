// Ranks that a launcher has started. MPI itself is loaded only then: programs that need none of it alone (msckpt) work
// on machines without.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "core/comm/transport.h"

namespace ms::core {

// True when a launcher (mpirun, srun) started this process as one of several ranks or asked for MPI.
bool launched_by_mpi();

// True when the process that started this one is that rank already: a script under mpirun that calls a program, perhaps
// on one rank only, whose MPI_Init would wait for the others. (`exec` in the script makes the program the rank.)
bool started_by_a_rank();

// lib/msuite/<name> beside the folder of the program.
std::filesystem::path library_of_ours(std::string_view name);

class RankSession {
 public:
  virtual ~RankSession() = default;
  virtual std::unique_ptr<Transport> transport() const = 0;  // over all ranks; must not outlive the session
  virtual int local_size() const = 0;                        // ranks on this machine
  // Ends the job for what cannot be agreed: a silent peer, or an exception outside a phase. Does not return.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

// The MpiSession (mpi_transport.h) of libmsuite_mpi.so. Throws kUnsupported if that cannot be loaded.
std::unique_ptr<RankSession> load_mpi_session();

}  // namespace ms::core
