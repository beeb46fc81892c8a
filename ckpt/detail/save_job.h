// One rank's part in one save, without any communication between ranks: they meet in the temporary directory. So the
// same code runs on a thread of the trainer and in a process that outlives it.
//
//   <temporary>/rank_00003.h5       what the rank writes
//   <temporary>/rank_00003.report   left when that is durable, or has failed; gone before the commit
//
// The coordinator (rank 0) waits for all reports, then commits; nothing waits for the coordinator.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/detail/incremental.h"
#include "ckpt/detail/rank_file.h"
#include "ckpt/retention.h"
#include "ckpt/source.h"
#include "core/error.h"
#include "core/sharded_tensor.h"
#include "core/trace/recorder.h"

namespace ms::ckpt {

struct SaveJob {
  std::filesystem::path root;
  std::filesystem::path temporary;  // in root; made by whoever comes first
  int rank = 0;
  std::vector<int> writers = {0};  // the ranks that write and report, the coordinator first
  CheckpointInfo info;
  std::string producer;
  std::vector<core::ShardedTensor> boxes;
  std::vector<const std::byte*> data;  // of each box
  std::vector<ShardHashes> hashes;     // of each box as far as the snapshot took them, or none at all
  RankFile::Options file;
  int compress_threads = 1;
  int64_t full_every = 0;  // 0: all is written; N: what is as it was is linked, but in every Nth save
  Retention retention;
  double timeout_s = 600;  // how long the coordinator waits for a report after its own
  int gathered = 0;        // ranks that a writer takes shards from, at most: it may wait so long for each of them

  bool coordinator() const { return rank == 0; }
};

// Outcomes as text: "k" and a content, or "e", the code's digit and the error's text.
std::string ok_text(const std::string& content);
std::string error_text(const core::Error& error);
// Runs body; an exception becomes an error_text.
std::string outcome_of(const std::function<std::string()>& body);
bool is_error(const std::string& outcome);
core::Error parse_error(const std::string& outcome);

// Writes this rank's file, or links it in parts; the outcome's content is encoded records (assemble.h). incremental:
// what the rank's save before left. Never throws.
std::string write_part(const SaveJob& job, Incremental& incremental, core::trace::Recorder* recorder);

// The same for boxes of which some lie elsewhere (their data is null): the caller knows the hashes of all chunks of all
// boxes, asked for only where the save before could be linked, and makes the rank's file of those boxes of the job that
// are to be written, as indices in rising order. Not called if there are none.
struct PartSource {
  std::function<std::vector<std::vector<uint64_t>>()> hashes;
  std::function<RankFileRecord(const std::vector<size_t>& wanted)> write;
};
std::string write_part(const SaveJob& job, Incremental& incremental, const PartSource& source);

// Whether the snapshot took the hashes of box i.
bool knows_hashes(const SaveJob& job, size_t i);
// Gives the file, whose boxes are these, or these and others behind them, the hashes that are known.
void tell_hashes(const SaveJob& job, const std::vector<size_t>& wanted, RankFile& file);
// Of every chunk of box i.
std::vector<uint64_t> hashes_of(const SaveJob& job, size_t i);
// How the rank's file is written.
RankFile::Options file_options(const SaveJob& job);
// Throws kIo unless there is room for so many bytes, once old generations that are being removed have gone.
void require_room(const SaveJob& job, int64_t bytes);

// Whether every rank has at least begun: its file or its report is there.
bool all_have_begun(const SaveJob& job);

// Leaves the outcome for the coordinator. Throws kIo.
void leave_report(const SaveJob& job, const std::string& outcome);

// Coordinator: waits for all ranks' reports (own: this rank's outcome), then makes the generation of them, or removes
// the temporary directory. give_up: asked while waiting; its text ends the save when not empty. The outcome's content
// is the path of the generation, to which the job's retention is then to be applied (retention_thread.h). Never throws.
std::string commit_reported(const SaveJob& job, const std::string& own, const std::function<std::string()>& give_up,
                            core::trace::Recorder* recorder);

}  // namespace ms::ckpt
