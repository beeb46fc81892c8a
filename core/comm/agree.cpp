#include "core/comm/agree.h"

#include <limits>

#include "core/error.h"

namespace ms::core {

void collectively(Communicator& comm, std::string_view phase, const std::function<void()>& body) {
  std::string text;
  int64_t code = 0;
  bool failed = true;
  try {
    body();
    failed = false;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kPeerFailed) throw;  // the vote would wait for the same silent peer
    text = e.what();
    code = static_cast<int64_t>(e.code());
  } catch (const std::bad_alloc&) {
    text = "out of memory";
    code = static_cast<int64_t>(ErrorCode::kOutOfMemory);
  } catch (const std::exception& e) {
    text = e.what();
    code = static_cast<int64_t>(ErrorCode::kInternal);
  }
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const int64_t first = comm.allreduce(failed ? int64_t{comm.rank()} : kNone, ReduceOp::kMin);
  if (first == kNone) return;
  const int64_t count = comm.allreduce(int64_t{failed});
  const auto root = static_cast<int>(first);
  comm.bcast(TensorView(&code, DType::kInt64, {1}), root);
  text = comm.bcast_string(text, root);
  const std::string more = count > 1 ? cat(" (and ", count - 1, count == 2 ? " more rank)" : " more ranks)") : "";
  const std::string who = comm.size() > 1 ? cat("rank ", comm.world_ranks()[static_cast<size_t>(root)], ": ") : "";
  throw AgreedError(static_cast<ErrorCode>(code), cat(phase, ": ", who, text, more));
}

}  // namespace ms::core
