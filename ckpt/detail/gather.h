// A gathered save (--ckpt-gather): several ranks send their shards to one of them, which writes one file with the
// shards of all, as Megatron's gather on data-parallel rank 0 does (get_parameter_state_dp_zero). The other ranks need
// no disk.
//
// A sender hashes its shards and offers them. The writer lays out its file, then requests from one sender after the
// other what it needs (in an incremental save: what has changed) and receives it in slices, in an order that both know.
// So a writer holds at most (members + 1) slices, however large the shards, and each sender opens one connection. The
// hashes are those of the sender's bytes: a transmission error is detected when the file is read.
//
//   sender -> writer   an outcome (outcome.h): records of its boxes, or why it has none
//   writer -> sender   '0' or '1' for each box; empty: nothing is needed
//   sender -> writer   slices (slices.h)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/detail/incremental.h"
#include "ckpt/detail/mailbox.h"
#include "ckpt/detail/save_job.h"
#include "core/arena.h"
#include "core/comm/transport.h"
#include "core/trace/recorder.h"

namespace ms::ckpt {

// Used by the writer thread of each member; created and destroyed by the thread that owns the transport.
class Gather {
 public:
  struct Options {
    std::vector<int> members;  // the ranks whose shards go to one file; the first one writes it
    int64_t slice_bytes = 0;
    double timeout_s = 600;  // limit for a silent member
    GiveUp give_up;
    core::Arena* arena = nullptr;               // not owned; slices are counted here, tag ckpt
    core::trace::Recorder* recorder = nullptr;  // not owned, may be null
  };
  Gather(std::unique_ptr<core::Transport> transport, Options options);
  ~Gather();

  bool writes() const { return mailbox_.rank() == options_.members[0]; }

  // Call one of the two for each save, in the same order on all members. failed: why this rank has nothing to write, if
  // it has nothing. They never throw.
  //
  // For the writer: as write_part (save_job.h), with the boxes of all members. A sender's error becomes the outcome,
  // and names that sender.
  Outcome write(const SaveJob& own, const std::optional<core::Error>& failed, Incremental& incremental);
  // For a sender: returns when the writer has received all that it requested (nothing, if the save failed on another
  // rank). The writer reports this rank's own errors; an error returned here means that the writer is gone.
  Outcome send(const SaveJob& own, const std::optional<core::Error>& failed);

 private:
  struct Part;
  struct Slot;
  // Number of transfers in flight: about half of the writer's (members + 1) slices; the others are on the way to disk.
  size_t window() const { return (options_.members.size() + 2) / 2; }

  // For a sender: the writer serves one member after the other, and each may delay it by timeout_s.
  double patience_s() const { return options_.timeout_s * static_cast<double>(options_.members.size()); }

  std::vector<Part> offers();
  RankFileRecord write_file(const SaveJob& all, std::vector<Part>& parts, const std::vector<size_t>& wanted);
  void receive_boxes(const Part& part, const std::vector<size_t>& boxes, int32_t first_in_file, RankFile& file);
  void send_boxes(const SaveJob& own, const std::vector<size_t>& boxes);

  Mailbox mailbox_;
  Options options_;
};

}  // namespace ms::ckpt
