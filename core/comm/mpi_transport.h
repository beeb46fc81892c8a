// Ranks that are MPI processes. The only place, with its .cpp, that knows <mpi.h>.
#pragma once

#include <memory>

#include "core/comm/transport.h"

namespace ms::core {

// True when a launcher (mpirun, srun) started this process as one of several ranks or asked for MPI.
bool launched_by_mpi();

// MPI_Init at construction, MPI_Finalize at destruction. Thread level: funnelled, all calls come from one thread.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  std::unique_ptr<Transport> transport() const;  // over MPI_COMM_WORLD; must not outlive the session
  int local_size() const;                        // ranks on this machine
  // Ends the job for what cannot be agreed: a silent peer, or an exception outside a phase. Does not return.
  [[noreturn]] void abort(int exit_code);
};

}  // namespace ms::core
