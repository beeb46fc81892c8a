// msckpt: inspects, verifies, compares, reshards and converts checkpoints (ckpt/README.md).
//
//   msckpt VERB ... [flags]
//
// Each verb is a pair of files in tools/msckpt/. Results go to stdout (the path of the result, a table, JSON),
// everything else to the log.

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/comm/agree.h"
#include "core/comm/communicator.h"
#include "core/comm/launcher.h"
#include "core/error.h"
#include "core/log.h"
#include "core/signals.h"
#include "tools/command_line.h"
#include "tools/guard.h"
#include "tools/msckpt/convert.h"
#include "tools/msckpt/diff.h"
#include "tools/msckpt/families.h"
#include "tools/msckpt/gc.h"
#include "tools/msckpt/inspect.h"
#include "tools/msckpt/merge.h"
#include "tools/msckpt/plan.h"
#include "tools/msckpt/reshard.h"
#include "tools/msckpt/seal.h"
#include "tools/msckpt/verify.h"

namespace {

using namespace ms::tools::msckpt;
namespace core = ms::core;

// In the order of --help.
constexpr Verb (*kVerbs[])(CLI::App&) = {add_inspect, add_verify, add_gc,      add_diff, add_plan,
                                         add_reshard, add_merge,  add_convert, add_seal, add_families};

// Runs in each process that a launcher has started: all of them run a shared verb, the first one runs any other.
int run_as_rank(const Verb& verb, std::unique_ptr<core::RankSession>& session) {
  constexpr double kPatienceS = 30 * 86400;  // one may have much more to write than another
  session = core::load_mpi_session();
  core::Endpoint endpoint(session->transport(), {.timeout_s = kPatienceS});
  core::set_log_rank(endpoint.rank(), false);
  std::vector<int> ranks(static_cast<size_t>(endpoint.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  core::Communicator team(endpoint, "team", ranks, 1);
  const Process process = {.team = verb.shared ? &team : nullptr, .local_size = session->local_size()};
  return verb.shared || endpoint.rank() == 0 ? verb.run(process) : 0;
}

int run(const std::vector<std::string>& args, std::unique_ptr<core::RankSession>& session) {
  CLI::App app("Inspects, verifies, compares, reshards and converts checkpoints", "msckpt");
  app.require_subcommand(1);
  std::vector<Verb> verbs;
  std::transform(std::begin(kVerbs), std::end(kVerbs), std::back_inserter(verbs),
                 [&](const auto add) { return add(app); });
  if (!ms::tools::parse(app, args)) return 0;
  const auto chosen = std::find_if(verbs.begin(), verbs.end(), [](const Verb& verb) { return verb.command->parsed(); });
  try {
    if (!core::launched_by_mpi() || core::started_by_a_rank()) return chosen->run({});
    return run_as_rank(*chosen, session);
  } catch (const core::AgreedError&) {
    throw;
  } catch (const core::Error& e) {
    throw e.within(chosen->command->get_name());
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // free large blocks to the system at once: --mem limits resident memory
  core::install_termination_handlers();
  std::unique_ptr<core::RankSession> session;
  return ms::tools::run_guarded(
      "msckpt", [&] { return run(ms::tools::arguments(argc, argv), session); },
      [&](int exit_code) {
        if (session) session->abort(exit_code);
      });
}
