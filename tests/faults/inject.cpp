// mstrain's trainer, with one rank that does wrong at a chosen operation: faults_injection.py runs it under mpirun.
//
//   inject FAULT RANK N [flags of mstrain]
//
// FAULT: kill, stop, hang, collective (another one in the same group, of equal size), shape (the same with other
// elements), group (a collective of all ranks), slow. It happens before the rank's Nth operation of the third step or
// later; some faults wait for the next one that they can change. "inject: rank R: FAULT at OP of GROUP" is logged then.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ckpt/reader.h"
#include "core/comm/communicator.h"
#include "core/comm/flight_recorder.h"
#include "core/comm/launcher.h"
#include "core/config.h"
#include "core/error.h"
#include "core/log.h"
#include "core/signals.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "tools/guard.h"
#include "train/config.h"
#include "train/loop/trainer.h"
#include "train/parallel/process_groups.h"

namespace ms {
namespace {

using core::CommOp;
using core::OperationCall;

class Injection {
 public:
  Injection(std::string fault, int64_t at) : fault_(std::move(fault)), left_(at) {}

  // of every phase of the trainer
  void at_phase(std::string_view phase) {
    constexpr int kHabit = 2;  // steps that go well
    if (phase == "forward") ++steps_;
    armed_ = steps_ > kHabit;
  }

  void at_operation(core::Communicator& comm, const OperationCall& call) {
    if (busy_ || !armed_ || comm.size() == 1) return;
    if (is_slow_) return delay();
    if (--left_ > 0 || done_ || !can_change(call)) return;
    done_ = true;
    core::log_error("inject", core::cat("rank ", comm.endpoint().rank(), ": ", fault_, " at ",
                                        core::comm_op_name(call.op), " of ", comm.name()));
    busy_ = true;
    inject(comm, call);
    busy_ = false;
  }

 private:
  static bool is_message(const OperationCall& call) { return call.op == CommOp::kSend || call.op == CommOp::kRecv; }
  bool can_change(const OperationCall& call) const {
    if (fault_ == "shape") return call.elements > 1 && call.op != CommOp::kBarrier && call.op != CommOp::kRecv;
    return fault_ != "collective" || !is_message(call);
  }
  static void delay() { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }

  void inject(core::Communicator& comm, const OperationCall& call) {
    if (fault_ == "kill") ::raise(SIGKILL);
    if (fault_ == "stop") ::raise(SIGSTOP);
    if (fault_ == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
    if (fault_ == "slow") is_slow_ = true;
    if (fault_ == "collective") another_collective(comm, call);
    if (fault_ == "shape") another_shape(comm, call);
    if (fault_ == "group") {
      core::Communicator world = train::open_group(comm.endpoint(), layout::Group::kBenchmark);
      world.barrier();
    }
  }

  static core::Tensor buffer(core::Communicator& comm, core::DType dtype, int64_t elements) {
    return core::Tensor(comm.endpoint().arena(), dtype, {elements}, core::MemoryTag::kComm);
  }

  static void another_collective(core::Communicator& comm, const OperationCall& call) {
    const core::Tensor data = buffer(comm, call.dtype, call.elements);
    if (call.op == CommOp::kBcast) return comm.allreduce(data.view());
    comm.bcast(data.view(), 0);
  }

  static void another_shape(core::Communicator& comm, const OperationCall& call) {
    const int64_t n = comm.size();
    const int64_t elements = call.elements / 2 / n * n > 0 ? call.elements / 2 / n * n : 2 * call.elements * n;
    const core::Tensor data = buffer(comm, call.dtype, elements), part = buffer(comm, call.dtype, elements / n);
    switch (call.op) {
      case CommOp::kReduceScatter:
        return comm.reduce_scatter(data.view(), part.view());
      case CommOp::kAllgather:
        return comm.allgather(part.view(), data.view());
      case CommOp::kBcast:
        return comm.bcast(data.view(), 0);
      case CommOp::kSend:
        return comm.send(data.view(), call.peer, call.tag);
      default:
        return comm.allreduce(data.view());
    }
  }

  std::string fault_;
  int64_t left_;
  int steps_ = 0;
  bool armed_ = false, busy_ = false, done_ = false, is_slow_ = false;
};

int run(const std::vector<std::string>& args, core::RankSession& session, core::FlightRecorder& flight) {
  constexpr size_t kOwn = 3;
  const int culprit = std::stoi(args.at(1));
  std::unique_ptr<core::Transport> transport = session.transport();
  const int rank = transport->rank();
  core::set_log_rank(rank, false);
  std::optional<Injection> injection;
  if (rank == culprit) injection.emplace(args.at(0), std::stoll(args.at(2)));
  train::TrainerConfig config;
  core::ConfigFields fields = config.fields();
  fields.parse_flags({args.begin() + kOwn, args.end()});
  core::Endpoint::Options options{.timeout_s = config.parallel.distributed_timeout_minutes * 60, .flight = &flight};
  if (injection) {
    options.at_operation = [&](core::Communicator& comm, const OperationCall& call) {
      injection->at_operation(comm, call);
    };
  }
  core::Endpoint endpoint(std::move(transport), options);
  core::ThreadPool pool(1);
  train::TrainerServices services;
  services.open_source = [](const std::filesystem::path& path, int64_t) { return ckpt::open_native(path); };
  if (injection) services.at_phase = [&](std::string_view phase) { injection->at_phase(phase); };
  train::Trainer(config, endpoint, pool, nullptr, services).run();
  return 0;
}

}  // namespace
}  // namespace ms

int main(int argc, char** argv) {
  using namespace ms;
  core::install_termination_handlers();
  const std::unique_ptr<core::RankSession> session = core::load_mpi_session();
  core::FlightRecorder flight;
  return tools::run_guarded(
      "mstrain", [&] { return run(tools::arguments(argc, argv), *session, flight); },
      [&](int exit_code) { session->abort(exit_code); },
      [&](std::string_view text) { return flight.claim_report(text); });
}
