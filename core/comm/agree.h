// All ranks fail together: local work that can fail runs inside an agreed phase; collectives stand between phases,
// never inside, so no rank waits for one that has thrown.
//
//   core::collectively(comm, "read shards", [&] { reader.read_local(); });  // all return, or all throw the same Error
#pragma once

#include <functional>
#include <string_view>

#include "core/comm/communicator.h"
#include "core/error.h"

namespace ms::core {

// An error that all ranks of a job throw together: one of them tells it, and none is left waiting.
class AgreedError final : public Error {
 public:
  using Error::Error;
  explicit AgreedError(const Error& error) : Error(error) {}
};

// Runs body on every rank, then votes with one allreduce. If any rank threw, all throw an AgreedError made of the
// lowest failing rank's: its code, and "phase: rank R: text (and N more ranks)". kPeerFailed alone is thrown on as it
// is.
void collectively(Communicator& comm, std::string_view phase, const std::function<void()>& body);

}  // namespace ms::core
