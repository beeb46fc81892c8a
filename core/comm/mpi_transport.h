// Transport over MPI processes. Only this header and its .cpp know <mpi.h>.
#pragma once

#include <cstdint>
#include <memory>

#include "core/comm/launcher.h"

namespace ms::core {

// Which threads will call MPI: the one that created the session, or any.
enum class MpiThreads : uint8_t { kOne, kAny };

// Calls MPI_Init at construction and MPI_Finalize at destruction.
class MpiSession final : public RankSession {
 public:
  // kAny requests MPI_THREAD_MULTIPLE, which makes every call a little slower; Transport::any_thread says whether MPI
  // provides it. kOne requests MPI_THREAD_FUNNELED.
  explicit MpiSession(MpiThreads threads = MpiThreads::kOne);
  ~MpiSession() override;
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  std::unique_ptr<Transport> transport() const override;
  int local_size() const override;
  [[noreturn]] void abort(int exit_code) override;
};

}  // namespace ms::core
