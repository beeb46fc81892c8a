// Makes all ranks fail together: local work that can fail runs inside an agreed phase; collectives run between phases,
// never inside, so no rank waits for one that has thrown.
//
//   core::collectively(comm, "read shards", [&] { reader.read_local(); });  // all return, or all throw the same Error
#pragma once

#include <functional>
#include <string_view>

#include "core/comm/communicator.h"
#include "core/error.h"

namespace ms::core {

// An error that all ranks of a job throw together: one of them reports it, and no rank is left waiting.
class AgreedError final : public Error {
 public:
  using Error::Error;
  explicit AgreedError(const Error& error) : Error(error) {}
};

// Runs body on every rank, then votes with one allreduce. If any rank threw, all ranks throw an AgreedError with the
// code of the lowest failing rank and the text "phase: rank R: text (and N more ranks)". Only kPeerFailed is rethrown
// at once, without a vote.
void collectively(Communicator& comm, std::string_view phase, const std::function<void()>& body);

}  // namespace ms::core
