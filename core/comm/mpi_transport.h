// Transport over MPI processes, in libmsuite_mpi.so (launcher.h). Only this .cpp knows <mpi.h>.
#pragma once

#include <memory>

#include "core/comm/launcher.h"

namespace ms::core {

// Calls MPI_Init at construction and MPI_Finalize at destruction.
class MpiSession final : public RankSession {
 public:
  // kAny requests MPI_THREAD_MULTIPLE, which makes every call a little slower; Transport::any_thread says whether MPI
  // provides it. kOne requests MPI_THREAD_SERIALIZED, for a progress thread; Transport::takes_turns says whether it is
  // there.
  explicit MpiSession(MpiThreads threads = MpiThreads::kOne);
  ~MpiSession() override;
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  std::unique_ptr<Transport> transport() const override;
  int local_size() const override;
  [[noreturn]] void abort(int exit_code) override;
};

}  // namespace ms::core
