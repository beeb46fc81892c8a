// Runs ranks as threads of one process: for fast layout tests, sanitizers and debuggers.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/comm/communicator.h"
#include "core/comm/delayed_transport.h"

namespace ms::test {

using SetOptions = std::function<void(int rank, core::Endpoint::Options&)>;
using WrapTransport = std::function<std::unique_ptr<core::Transport>(std::unique_ptr<core::Transport>)>;

// Runs body(endpoint) on `ranks` threads that share a world. If one throws, the waits of the others fail, and the first
// real exception is rethrown here. timeout_s: of every wait. wrap: applied to every rank's transport. recorders: one
// per rank, or none. set: of each rank's endpoint, last.
void run_thread_ranks(int ranks, const std::function<void(core::Endpoint&)>& body, double timeout_s = 60,
                      core::LinkDelay delay = {}, const WrapTransport& wrap = {},
                      std::span<core::trace::Recorder> recorders = {}, const SetOptions& set = {});

}  // namespace ms::test
