#include "profile/analysis/hta_results.h"

#include "profile/analysis/hta_rounding.h"
#include "profile/analysis/hta_stragglers.h"

namespace ms::profile {

HtaResults hta_results(Store& store, bool keep_last_step, int64_t consecutive_delay) {
  for (const auto& trace : store.ranks) round_as_hta(*trace);
  const std::vector<HtaFrame> frames = hta_frames(store.ranks, keep_last_step);
  HtaResults out;
  out.steps = hta_profiler_steps(frames);
  for (const HtaFrame& frame : frames) {
    out.ranks.push_back({frame.trace->rank, hta_breakdown(frame), hta_idle(frame, consecutive_delay),
                         hta_queue_lengths(frame), hta_bandwidths(frame)});
  }
  out.stragglers = hta_stragglers(frames);
  return out;
}

}  // namespace ms::profile
