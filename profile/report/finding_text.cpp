#include "profile/report/finding_text.h"

#include <algorithm>

#include "core/error.h"
#include "profile/analysis/recorder.h"
#include "profile/report/table.h"

namespace ms::profile {
namespace {

using core::cat;

std::string_view idle_sentence(IdleCause cause) {
  switch (cause) {
    case IdleCause::kHostWork:
      return "the device waits for the host, which prepares and launches work (launch-bound)";
    case IdleCause::kPython:
      return "the device waits for the host, which runs Python";
    case IdleCause::kSynchronisation:
      return "the host is in a call that waits for the device, and launches nothing";
    case IdleCause::kAllocation:
      return "the device waits for the host, which allocates or frees device memory";
    case IdleCause::kHostCopy:
      return "the device waits for the host, which is in a copy call that does not return at once";
    case IdleCause::kCodeLoading:
      return "the device waits for the host, which loads or compiles the code of a kernel";
    case IdleCause::kAnnotation:
      return "the trace holds only an annotation of what the host does";
    case IdleCause::kLaunchLatency:
      return "kernels start later than they are launched (launch latency)";
    case IdleCause::kBetweenKernels:
      return "short gaps between kernels that are queued already";
    case IdleCause::kDependency:
      return "kernels are launched and do not start: they wait for an event, another stream or an earlier graph node";
    case IdleCause::kUnknown:
      return "the trace does not say what the host does";
  }
  MS_CHECK(false, "cause ", static_cast<int>(cause));
}

bool on_cpu(const Results& results) {
  return std::any_of(results.views.begin(), results.views.end(), [](const DeviceView& view) { return view.on_host; });
}

// Without a device, a thread is idle if it computes nothing.
std::string_view idle_sentence_on_cpu(IdleCause cause) {
  switch (cause) {
    case IdleCause::kHostWork:
      return "no operator computes: short operators are called, or work is handed to the communicator";
    case IdleCause::kPython:
      return "no operator computes while Python runs";
    case IdleCause::kAllocation:
      return "no operator computes while memory is allocated or freed";
    case IdleCause::kAnnotation:
      return "no operator computes, and the trace holds only an annotation of this time";
    case IdleCause::kUnknown:
      return "no operator computes, and the trace does not say why";
    default:
      return "no operator computes";
  }
}

// Which words a remedy needs: PyTorch's tools have other names for each.
enum class Device : uint8_t { kCpu, kGpu, kNpu };

Device device_of(const Results& results) {
  if (on_cpu(results)) return Device::kCpu;
  const auto* recorder = results.get<TraceRecorder>();
  return recorder != nullptr && recorder->is_ascend ? Device::kNpu : Device::kGpu;
}

// Of the causes that a trace of a CPU can have: nothing is launched there.
std::string_view idle_remedy_on_cpu(IdleCause cause) {
  switch (cause) {
    case IdleCause::kPython:
      return "if it is model code, compile it (torch.compile); if it prepares inputs, move it to loader workers; if it "
             "logs, do it every N steps";
    case IdleCause::kAllocation:
      return "if it happens in every step, keep tensors between steps and write into them; in the first steps it is "
             "warm-up";
    case IdleCause::kAnnotation:
      return "to see inside, record operators and Python frames (activities=[CPU], with_stack=True)";
    case IdleCause::kUnknown:
      return "to see it, record Python frames (with_stack=True)";
    default:
      return "if operators are short: larger batches, or fewer, fused operators (torch.compile)";
  }
}

std::string_view idle_remedy(IdleCause cause, Device device) {
  if (device == Device::kCpu) return idle_remedy_on_cpu(cause);
  const bool npu = device == Device::kNpu;
  switch (cause) {
    case IdleCause::kHostWork:
      return npu ? "if shapes repeat, capture the step in an NPU graph (torch_npu's NPUGraph); else use larger batches "
                   "or fewer, fused operators"
                 : "if shapes repeat, capture the step in a CUDA graph (torch.compile mode=\"reduce-overhead\"); else "
                   "use larger batches or fewer, fused operators";
    case IdleCause::kPython:
      return idle_remedy_on_cpu(cause);
    case IdleCause::kSynchronisation:
      return "if the next launch does not depend on the value, read it later or less often (.item(), .cpu(), nonzero, "
             "synchronize)";
    case IdleCause::kAllocation:
      return npu ? "if it happens in every step, keep memory between steps (no empty_cache; "
                   "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True); in the first steps it is warm-up"
                 : "if it happens in every step, keep memory between steps (no empty_cache; "
                   "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True); in the first steps it is warm-up";
    case IdleCause::kHostCopy:
      return "if it copies inputs to the device, pin their memory and copy with non_blocking=True; if it reads results "
             "back, do it less often";
    case IdleCause::kCodeLoading:
      return npu ? "if it happens in the first steps only, profile after more warm-up steps; else keep compiled "
                   "kernels "
                   "(fixed shapes, compile caches, torch_npu.npu.set_compile_mode(jit_compile=False))"
                 : "if it happens in the first steps only, profile after more warm-up steps; else keep compiled "
                   "kernels "
                   "(fixed shapes, compile caches, CUDA_MODULE_LOADING=EAGER)";
    case IdleCause::kAnnotation:
      return npu ? "to see inside, record operators and Python frames (activities=[CPU, NPU], with_stack=True)"
                 : "to see inside, record operators and Python frames (activities=[CPU, CUDA], with_stack=True)";
    case IdleCause::kLaunchLatency:
      return npu ? "if kernels are short, launch many at once with an NPU graph, or run fewer, fused kernels"
                 : "if kernels are short, launch many at once with a CUDA graph, or run fewer, fused kernels";
    case IdleCause::kBetweenKernels:
      return "if kernels are short, run fewer, fused kernels (torch.compile), or larger batches";
    case IdleCause::kDependency:
      return "look in a timeline at what ends just before these kernels start; start that earlier, or split it so that "
             "it overlaps";
    case IdleCause::kUnknown:
      return npu ? "to see it, record the host with Python frames (activities=[CPU, NPU], with_stack=True)"
                 : "to see it, record the host with Python frames (activities=[CPU, CUDA], with_stack=True)";
  }
  MS_CHECK(false, "cause ", static_cast<int>(cause));
}

// In mstrain's flags: it runs on CPUs, whatever its trace calls them.
std::string_view idle_remedy_in_mstrain(IdleCause cause) {
  switch (cause) {
    case IdleCause::kUnknown:
    case IdleCause::kAnnotation:
      return "to see inside, record the operators of the host too (--profile-with-cpu)";
    case IdleCause::kHostWork:
    case IdleCause::kBetweenKernels:
      return "if operators are short: a larger --micro-batch-size";
    case IdleCause::kLaunchLatency:
      return "if operators are short: a larger --micro-batch-size; if ranks share cores: fewer --threads-per-rank";
    case IdleCause::kAllocation:
      return "if it happens in every step, sizes differ from step to step; in the first steps it is warm-up";
    case IdleCause::kDependency:
      return idle_remedy(cause, Device::kGpu);
    default:
      return "look in a timeline (msprof convert) at what the rank does then";
  }
}

// Empty: what others do.
std::string_view remedy_in_mstrain(const Finding& finding) {
  if (finding.kind == FindingKind::kExposedMemory)
    return "if they are of --swap-attention, name a folder on a faster disk by --swap-dir, or keep small tensors in "
           "memory (--swap-min-tensor-kib)";
  if (finding.kind == FindingKind::kDataLoading) return "put the data, or --data-cache-path, on a faster disk";
  return finding.kind == FindingKind::kIdle ? idle_remedy_in_mstrain(finding.cause) : "";
}

// Finding::where of unknown time contains its preposition: "before aten::add".
std::string place(const Finding& f) {
  if (f.where.empty()) return {};
  const std::string_view word = f.cause == IdleCause::kUnknown      ? ""
                                : f.cause == IdleCause::kDependency ? "during "
                                                                    : "in ";
  return cat("; most ", word, shorten(readable_name(f.where), 60));
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
      return cat("idle: ", on_cpu(results) ? idle_sentence_on_cpu(f.cause) : idle_sentence(f.cause), most, mostly,
                 place(f));
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
  if (const auto* recorder = results.get<TraceRecorder>(); recorder != nullptr && recorder->is_mstrain) {
    if (const std::string_view own = remedy_in_mstrain(finding); !own.empty()) return own;
  }
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
      return idle_remedy(finding.cause, device_of(results));
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
