// A gathered save (--ckpt-gather): the shards of several ranks travel to one of them, which writes a file of all, as in
// Megatron's gather on data-parallel rank 0 (get_parameter_state_dp_zero). The others need no disk.
//
// A sender hashes what it has and offers it; the writer lays its file out, then asks one sender after the other for
// what it wants of that (an incremental save: what has changed) and gets it in slices, in an order that both know. So a
// writer holds (members + 1) slices at most, however large the shards, and each sender opens one connection. Hashes are
// of the sender's bytes: what the way does to them shows when the file is read.
//
//   sender -> writer   an outcome (save_job.h): records of its boxes, or why it has none
//   writer -> sender   '0' or '1' for each box; nothing: that was all
//   sender -> writer   slices (slices.h)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/detail/incremental.h"
#include "ckpt/detail/mailbox.h"
#include "ckpt/detail/save_job.h"
#include "core/arena.h"
#include "core/comm/transport.h"
#include "core/trace/recorder.h"

namespace ms::ckpt {

// For the writer thread of each member; made and destroyed by the thread that the transport belongs to.
class Gather {
 public:
  struct Options {
    std::vector<int> members;  // the ranks whose shards meet in one file; the first writes it
    int64_t slice_bytes = 0;
    double timeout_s = 600;                     // for a member's silence
    std::function<std::string()> give_up;       // asked while waiting; an error_text ends the save
    core::Arena* arena = nullptr;               // not owned; slices are counted here, tag ckpt
    core::trace::Recorder* recorder = nullptr;  // not owned, may be null
  };
  Gather(std::unique_ptr<core::Transport> transport, Options options);
  ~Gather();

  bool writes() const { return mailbox_.rank() == options_.members[0]; }

  // One of the two for each save, in the same order on all members. failed: an error_text where this rank has nothing
  // to write, else empty. Never throw.
  //
  // The writer's: as write_part (save_job.h), of the boxes of all members. An error of a sender is the outcome, and
  // names it.
  std::string write(const SaveJob& own, const std::string& failed, Incremental& incremental);
  // A sender's: ok when the writer has all it wanted, which is nothing if the save has failed elsewhere. Its own errors
  // are the writer's to tell; one here says that the writer is not there.
  std::string send(const SaveJob& own, const std::string& failed);

 private:
  struct Part;
  struct Slot;
  // Transfers under way at once: with the slices being written and the one in hand, a slice per member and one more.
  size_t window() const { return (options_.members.size() + 2) / 2; }

  // Of a sender: the writer serves one after the other, and each may keep it waiting.
  double patience_s() const { return options_.timeout_s * static_cast<double>(options_.members.size()); }

  std::vector<Part> offers();
  RankFileRecord write_file(const SaveJob& all, std::vector<Part>& parts, const std::vector<size_t>& wanted);
  void receive_boxes(const Part& part, const std::vector<size_t>& boxes, int32_t first_in_file, RankFile& file);
  void send_boxes(const SaveJob& own, const std::vector<size_t>& boxes);

  Mailbox mailbox_;
  Options options_;
};

}  // namespace ms::ckpt
