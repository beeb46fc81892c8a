// All ranks fail together: local work that can fail runs inside an agreed phase; collectives stand between phases,
// never inside, so no rank waits for one that has thrown.
//
//   core::collectively(comm, "read shards", [&] { reader.read_local(); });  // all return, or all throw the same Error
#pragma once

#include <functional>
#include <string_view>

#include "core/comm/communicator.h"

namespace ms::core {

// Runs body on every rank, then votes with one allreduce. If any rank threw, all throw the error of the lowest failing
// rank: its code, and "phase: rank R: text (and N more ranks)".
void collectively(Communicator& comm, std::string_view phase, const std::function<void()>& body);

}  // namespace ms::core
