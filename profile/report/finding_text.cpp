#include "profile/report/finding_text.h"

#include <algorithm>

#include "core/error.h"
#include "profile/report/table.h"

namespace ms::profile {
namespace {

using core::cat;

std::string_view idle_sentence(IdleCause cause) {
  switch (cause) {
    case IdleCause::kHostWork:
      return "the device is idle while the host prepares and launches work (launch-bound)";
    case IdleCause::kPython:
      return "the device is idle while the host runs Python";
    case IdleCause::kSynchronisation:
      return "the device is idle after the host has waited for it and launches nothing yet";
    case IdleCause::kAllocation:
      return "the device is idle while the host allocates or frees memory";
    case IdleCause::kAnnotation:
      return "the device is idle in a phase of the host of which only the annotation is known";
    case IdleCause::kLaunchLatency:
      return "kernels are launched, and start later (launch latency)";
    case IdleCause::kDependency:
      return "kernels are launched, and wait for another stream or an event";
    case IdleCause::kUnknown:
      return "the device is idle, and the trace holds nothing that the host does meanwhile";
  }
  MS_CHECK(false, "cause ", static_cast<int>(cause));
}

bool on_cpu(const Results& results) {
  return std::any_of(results.views.begin(), results.views.end(), [](const DeviceView& view) { return view.on_host; });
}

// Without a device what is idle is a thread that computes nothing.
std::string_view idle_sentence_on_cpu(IdleCause cause) {
  switch (cause) {
    case IdleCause::kHostWork:
      return "no operator computes while others are called, or hand work to the communicator";
    case IdleCause::kPython:
      return "no operator computes while Python runs";
    case IdleCause::kAnnotation:
      return "no operator computes in a phase of which only the annotation is known";
    case IdleCause::kUnknown:
      return "no operator computes, and the trace holds nothing else that happens";
    default:
      return "no operator computes";
  }
}

std::string_view idle_remedy(IdleCause cause, bool cpu) {
  switch (cause) {
    case IdleCause::kHostWork:
      if (cpu) return "larger batches and fewer, fused operators (torch.compile) if operators are short";
      return "capture the step in a CUDA graph or compile it (torch.compile) if shapes repeat; else larger batches and "
             "fewer, fused operators";
    case IdleCause::kPython:
      return "move this code off the step (another thread, every N steps), or compile the step if it is model code";
    case IdleCause::kSynchronisation:
      return "read values back less often (.item(), .cpu(), nonzero), or a step later, if the next launch does not "
             "depend on them";
    case IdleCause::kAllocation:
      return "keep memory between steps (no empty_cache; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True) if it "
             "happens in every step; in the first steps it is warm-up";
    case IdleCause::kAnnotation:
      return "record operators and Python frames too (activities=[CPU, CUDA], with_stack=True) to see inside";
    case IdleCause::kLaunchLatency:
      return "if kernels are short, a CUDA graph launches many at once; else run fewer, fused kernels";
    case IdleCause::kDependency:
      return "look at what the other stream does then: start it earlier, or split it so that it overlaps";
    case IdleCause::kUnknown:
      if (cpu) return "record Python frames too (with_stack=True)";
      return "record the host too (activities=[CPU, CUDA], with_stack=True)";
  }
  MS_CHECK(false, "cause ", static_cast<int>(cause));
}

}  // namespace

std::string sentence(const Finding& f, const Results& results) {
  const auto on = [&](std::string_view what) {
    return results.ranks.size() < 2 ? std::string()
                                    : cat(what, " on rank ", f.worst_rank, " (", milliseconds(f.worst_ns), " ms)");
  };
  const std::string most = on("; most"),
                    mostly = f.detail.empty() ? "" : cat("; mainly ", shorten(readable_name(f.detail), 60));
  switch (f.kind) {
    case FindingKind::kExposedCommunication:
      return cat("communication that no computing hides", most, f.detail.empty() ? "" : cat("; mainly ", f.detail));
    case FindingKind::kImbalance:
      return cat("waiting for unequal work (within the waits above and below): rank ", f.worst_rank,
                 " computes longest");
    case FindingKind::kDataLoading:
      return cat("waiting for data", most, mostly);
    case FindingKind::kCheckpoint:
      return cat("stopped for checkpoints", most, mostly);
    case FindingKind::kExposedMemory:
      return cat("copies that nothing hides", most, mostly);
    case FindingKind::kIdle:
      return cat("idle: ", on_cpu(results) ? idle_sentence_on_cpu(f.cause) : idle_sentence(f.cause), most, mostly);
    case FindingKind::kWaiting: {
      const auto& by_rank = results.at<CrossRank>().by_rank;
      const auto waits = by_rank.find(f.worst_rank);
      const bool more = waits != by_rank.end() && waits->second.blame > 0 && waits->second.blame != f.worst_ns;
      return cat(
          "waiting for ranks that come late: rank ", f.worst_rank, " causes ", milliseconds(f.worst_ns), " ms",
          more ? cat(" (its blame, with waits that computing hides: ", milliseconds(waits->second.blame), " ms)") : "",
          f.detail.empty() ? "" : "; ", f.detail);
    }
    case FindingKind::kPipelineBubble:
      return cat("waiting for other pipeline stages; most for rank ", f.worst_rank, f.detail.empty() ? "" : "; ",
                 f.detail);
    case FindingKind::kSlowLink:
      return cat("a slow link: ", f.detail);
  }
  MS_CHECK(false, "finding ", static_cast<int>(f.kind));
}

std::string_view remedy(const Finding& finding, const Results& results) {
  switch (finding.kind) {
    case FindingKind::kExposedCommunication:
      return "overlap it with computing (smaller buckets, prefetch), or send less (larger micro-batches, lower "
             "precision) if its GB/s are near the best";
    case FindingKind::kImbalance:
      return "give each rank the same work (sequence lengths, experts, layers per stage)";
    case FindingKind::kDataLoading:
      return "more loader workers, prefetch and pinned memory, if the loader can run while the step computes";
    case FindingKind::kCheckpoint:
      return "save asynchronously, or less often";
    case FindingKind::kExposedMemory:
      return "copy from pinned memory on a stream of its own (non_blocking=True), before the data is needed";
    case FindingKind::kIdle:
      return idle_remedy(finding.cause, on_cpu(results));
    case FindingKind::kWaiting:
      return "make the late rank faster: even out its work if it computes longer, check its machine if it does the "
             "same "
             "work";
    case FindingKind::kPipelineBubble:
      return "move layers from the longest stage to others if stages are uneven; else more micro-batches or "
             "interleaved "
             "stages";
    case FindingKind::kSlowLink:
      return "check this link (cable, NIC, placement of ranks); place what communicates most on faster links";
  }
  MS_CHECK(false, "finding ", static_cast<int>(finding.kind));
}

std::string_view verb_of(FindingKind kind) {
  switch (kind) {
    case FindingKind::kExposedCommunication:
      return "breakdown --per-step";
    case FindingKind::kIdle:
      return "idle";
    case FindingKind::kExposedMemory:
      return "kernels";
    case FindingKind::kWaiting:
      return "ranks";
    case FindingKind::kPipelineBubble:
      return "pipeline";
    case FindingKind::kSlowLink:
      return "links";
    case FindingKind::kImbalance:
    case FindingKind::kDataLoading:
    case FindingKind::kCheckpoint:
      return "steps";
  }
  MS_CHECK(false, "finding ", static_cast<int>(kind));
}

}  // namespace ms::profile
