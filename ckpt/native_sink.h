// Writes a native checkpoint from whole-checkpoint streams (msckpt reshard, convert): one rank file per rank of the
// layout, whichever process writes it, then the manifest, then the atomic rename.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/sink.h"
#include "core/io/bulk_writer.h"

namespace ms::ckpt {

using ExpectedHash =
    std::function<std::optional<uint64_t>(const std::string& key, core::TensorRole role, core::DType dtype)>;

struct NativeSinkOptions {
  std::filesystem::path root;           // the checkpoint root; iter_%07d is made in it
  std::vector<int32_t> rank_of_target;  // per target of begin(), as layout.h's ShardList::ranks; empty: all of rank 0
  int num_ranks = 1;                    // files to write: world size of the layout
  std::string producer = "msuite";
  bool compress = false;
  std::optional<core::WritePath> write_path;  // nothing: the fastest that works there
  // The logical hash of a tensor where it is known beforehand (reshard.h): commit() refuses, kInternal, if what was
  // written differs. May be empty.
  ExpectedHash expected_logical_xxh3;
};

// Throws kIo if another process saves in root. Two targets of one rank file may not be the same box.
std::unique_ptr<Sink> make_native_sink(NativeSinkOptions options);

}  // namespace ms::ckpt
