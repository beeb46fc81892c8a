// Ranks that are MPI processes. The only place, with its .cpp, that knows <mpi.h>.
#pragma once

#include <memory>

#include "core/comm/launcher.h"

namespace ms::core {

// MPI_Init at construction, MPI_Finalize at destruction. Thread level: funnelled, all calls come from one thread.
class MpiSession final : public RankSession {
 public:
  MpiSession();
  ~MpiSession() override;
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  std::unique_ptr<Transport> transport() const override;
  int local_size() const override;
  [[noreturn]] void abort(int exit_code) override;
};

}  // namespace ms::core
