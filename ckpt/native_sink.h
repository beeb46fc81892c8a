// Writes a native checkpoint from whole-checkpoint streams (msckpt reshard, convert): one rank file per rank of the
// layout, whichever process writes it, then the manifest, then the atomic rename.
//
// Several processes (a team) write one checkpoint together: they deal the files among them, longest first. A file that
// is durable leaves a note in <temporary directory>-notes, by which the coordinator (rank 0 of the team) learns what it
// holds, and by which --resume knows it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/rank_runs.h"
#include "ckpt/sink.h"
#include "core/comm/communicator.h"
#include "core/io/bulk_writer.h"

namespace ms::ckpt {

using ExpectedHash =
    std::function<std::optional<uint64_t>(const std::string& key, core::TensorRole role, core::DType dtype)>;

struct NativeSinkOptions {
  std::filesystem::path root;  // the checkpoint root; iter_%07d is made in it
  RankRuns rank_of_target;     // per target of begin(), as layout.h's ShardList::ranks; empty: all of rank 0
  int num_ranks = 1;           // files to write: world size of the layout
  std::string producer = "msuite";
  bool compress = false;
  std::optional<core::WritePath> write_path;  // nothing: the fastest that works there
  // The logical hash of a tensor where it is known beforehand (reshard.h): commit() refuses, kInternal, if what was
  // written differs. May be empty.
  ExpectedHash expected_logical_xxh3;
  core::Communicator* team = nullptr;  // the processes that write it together, on one file system; null: alone
  // 16 hex digits that stand for everything that decides the bytes of the files (reshard.h's hash_of_plan): the
  // temporary directory is named by it, and finished files are noted there. Needed by a team, and to resume.
  std::string plan_hash;
  // Goes on with the files that were finished under the same plan_hash, and leaves what is finished when it fails.
  bool resume = false;
};

// begin, agree and commit are collective over the team. Throws kIo if another process saves in root. Two targets of one
// rank file may not be the same box.
std::unique_ptr<Sink> make_native_sink(NativeSinkOptions options);

}  // namespace ms::ckpt
