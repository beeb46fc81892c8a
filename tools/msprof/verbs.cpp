#include "tools/msprof/analyze.h"
#include "tools/msprof/breakdown.h"
#include "tools/msprof/check.h"
#include "tools/msprof/convert.h"
#include "tools/msprof/critical_path.h"
#include "tools/msprof/diff.h"
#include "tools/msprof/events.h"
#include "tools/msprof/experts.h"
#include "tools/msprof/flight.h"
#include "tools/msprof/idle.h"
#include "tools/msprof/info.h"
#include "tools/msprof/kernels.h"
#include "tools/msprof/launch.h"
#include "tools/msprof/links.h"
#include "tools/msprof/memory.h"
#include "tools/msprof/mfu.h"
#include "tools/msprof/ops.h"
#include "tools/msprof/overlap.h"
#include "tools/msprof/pipeline.h"
#include "tools/msprof/pop.h"
#include "tools/msprof/query.h"
#include "tools/msprof/queue.h"
#include "tools/msprof/ranks.h"
#include "tools/msprof/record.h"
#include "tools/msprof/report.h"
#include "tools/msprof/slice.h"
#include "tools/msprof/steps.h"
#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

std::vector<std::unique_ptr<Verb>> all_verbs() {
  constexpr std::unique_ptr<Verb> (*kMake[])() = {
      analyze_verb, info_verb,  breakdown_verb,     overlap_verb, kernels_verb, ops_verb,    launch_verb,
      queue_verb,   idle_verb,  memory_verb,        steps_verb,   ranks_verb,   links_verb,  pipeline_verb,
      pop_verb,     diff_verb,  critical_path_verb, mfu_verb,     query_verb,   events_verb, report_verb,
      check_verb,   slice_verb, convert_verb,       record_verb,  flight_verb,  experts_verb};
  std::vector<std::unique_ptr<Verb>> out;
  for (const auto make : kMake) out.push_back(make());
  return out;
}

}  // namespace ms::tools::msprof
