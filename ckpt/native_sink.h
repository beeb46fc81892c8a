// Writes a native checkpoint from a stream of target shards (msckpt reshard, convert): one rank file per rank of the
// layout, whichever process writes it, then the manifest, then the atomic rename.
//
// Several processes (a team) can write one checkpoint together: the files are distributed among them, longest first. A
// durable file gets a note in <temporary directory>-notes; the coordinator (rank 0 of the team) reads there what the
// file holds, and --resume uses it to skip the file.
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
  RankRuns rank_of_target;     // per target of begin(), as layout.h's ShardList::ranks; empty: all are rank 0's
  int num_ranks = 1;           // files to write: world size of the layout
  std::string producer = "msuite";
  bool compress = false;
  std::optional<core::WritePath> write_path;  // nullopt: the fastest that works there
  // Returns the logical hash of a tensor if it is known beforehand (reshard.h): commit() throws kInternal if what was
  // written differs. May be empty.
  ExpectedHash expected_logical_xxh3;
  core::Communicator* team = nullptr;  // processes that write it together, on one file system; null: only this one
  // 16 hex digits derived from everything that determines the bytes of the files (reshard.h's hash_of_plan). They are
  // part of the temporary directory's name, where finished files are noted. Required for a team and for resume.
  std::string plan_hash;
  // Reuses files that were finished under the same plan_hash, and keeps finished files on failure.
  bool resume = false;
};

// begin, agree and commit are collective over the team. Throws kIo if another process saves in root. No two targets of
// one rank file may be the same box.
std::unique_ptr<Sink> make_native_sink(NativeSinkOptions options);

}  // namespace ms::ckpt
