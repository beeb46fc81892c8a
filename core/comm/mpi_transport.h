// Ranks that are MPI processes. The only place, with its .cpp, that knows <mpi.h>.
#pragma once

#include <cstdint>
#include <memory>

#include "core/comm/launcher.h"

namespace ms::core {

// Which threads will call MPI: the one that made the session, or any.
enum class MpiThreads : uint8_t { kOne, kAny };

// MPI_Init at construction, MPI_Finalize at destruction.
class MpiSession final : public RankSession {
 public:
  // kAny (MPI_THREAD_MULTIPLE) is a wish, and makes every call a little slower: Transport::any_thread says whether it
  // was granted. Else MPI_THREAD_FUNNELED.
  explicit MpiSession(MpiThreads threads = MpiThreads::kOne);
  ~MpiSession() override;
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  std::unique_ptr<Transport> transport() const override;
  int local_size() const override;
  [[noreturn]] void abort(int exit_code) override;
};

}  // namespace ms::core
