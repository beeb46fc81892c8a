// One rank's share of one save, without communication between ranks: they synchronise through files in the temporary
// directory. So the same code runs on a thread of the trainer and in a process that outlives it.
//
//   <temporary>/rank_00003.h5       what the rank writes
//   <temporary>/rank_00003.report   written when that is durable or has failed; removed before the commit
//
// The coordinator (rank 0) waits for all reports, then commits; no rank waits for the coordinator.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/detail/incremental.h"
#include "ckpt/detail/outcome.h"
#include "ckpt/detail/rank_file.h"
#include "ckpt/retention.h"
#include "ckpt/source.h"
#include "core/sharded_tensor.h"
#include "core/trace/recorder.h"

namespace ms::ckpt {

struct SaveJob {
  std::filesystem::path root;
  std::filesystem::path temporary;  // in root; created by the first rank that needs it
  int rank = 0;
  std::vector<int> writers = {0};  // the ranks that write and report, the coordinator first
  CheckpointInfo info;
  std::string producer;
  std::vector<core::ShardedTensor> boxes;
  std::vector<const std::byte*> data;  // one per box
  std::vector<ShardHashes> hashes;     // one per box, empty if the snapshot did not take it; or no elements at all
  RankFile::Options file;
  int compress_threads = 1;
  int64_t full_every = 0;  // 0: write all; N: link unchanged boxes, except in every Nth save
  Retention retention;
  double timeout_s = 600;  // how long the coordinator waits for a report after its own
  int gathered = 0;        // most ranks that a writer takes shards from: it may wait timeout_s for each

  bool coordinator() const { return rank == 0; }
};

// Writes this rank's file, or links parts of it; the outcome's content is encoded records (assemble.h). incremental:
// state from the rank's previous save. Never throws.
Outcome write_part(const SaveJob& job, Incremental& incremental, core::trace::Recorder* recorder);

// The same if some boxes are held elsewhere (their data is null). The caller provides the hashes of all chunks of all
// boxes (called only if the previous save can be linked) and writes the rank's file with the boxes that must be
// written, given as ascending indices. write is not called if there are none.
struct PartSource {
  std::function<std::vector<std::vector<uint64_t>>()> hashes;
  std::function<RankFileRecord(const std::vector<size_t>& wanted)> write;
};
Outcome write_part(const SaveJob& job, Incremental& incremental, const PartSource& source);

// True if the snapshot took the hashes of box i.
bool knows_hashes(const SaveJob& job, size_t i);
// Passes the known hashes to the file, whose first boxes are `wanted`.
void tell_hashes(const SaveJob& job, const std::vector<size_t>& wanted, RankFile& file);
// Hashes of every chunk of box i.
std::vector<uint64_t> hashes_of(const SaveJob& job, size_t i);
// Options for writing the rank's file.
RankFile::Options file_options(const SaveJob& job);
// Throws kIo unless there is space for `bytes`, after old generations that are being removed are gone.
void require_room(const SaveJob& job, int64_t bytes);

// True if every rank has at least started: its file or its report exists.
bool all_have_begun(const SaveJob& job);

// Writes the outcome to this rank's report for the coordinator. Throws kIo.
void leave_report(const SaveJob& job, const Outcome& outcome);

// For the coordinator: waits for all ranks' reports (own: this rank's outcome), then commits the generation or removes
// the temporary directory. The outcome's content is the path of the generation; the caller then applies the job's
// retention (retention_thread.h). Never throws.
Outcome commit_reported(const SaveJob& job, const Outcome& own, const GiveUp& give_up, core::trace::Recorder* recorder);

}  // namespace ms::ckpt
