// Incremental saves: write what has changed since the previous save and link the rest.
//
// A box with unchanged hashes is not written again: its file of the earlier save is hard-linked into the new directory
// from a descriptor that was kept open, so that a removed generation, or another one of the same name, cannot be linked
// by mistake. Every generation is complete by itself; a file is freed with the last generation that links it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/detail/rank_file.h"
#include "core/io/file.h"

namespace ms::ckpt {

// What one rank's last save wrote. Lives where the rank's files are written.
class Incremental {
 public:
  // Finds unchanged boxes by the hashes of their chunks: for each box the index of its entry, or -1.
  std::vector<int> unchanged(const std::vector<core::ShardedTensor>& boxes,
                             const std::vector<std::vector<uint64_t>>& chunk_xxh3) const;

  // Links the files of these entries into `directory`. Returns their records, each with the boxes used from it. nullopt
  // if a file cannot be linked: everything must then be written.
  std::optional<std::vector<RankFileRecord>> link(const std::vector<int>& entries, const std::string& directory) const;

  // Call after a save: the state becomes what it wrote (path; null record: nothing was new) and what it linked.
  void remember(const std::string& path, int64_t iteration, const RankFileRecord* written,
                const std::vector<RankFileRecord>& linked);
  bool knows_nothing() const { return entries_.empty(); }
  void forget() { entries_.clear(), files_.clear(); }

  int64_t since_full() const { return since_full_; }  // saves since the last one that linked nothing

 private:
  struct KeptFile {
    std::shared_ptr<core::File> file;  // open, so that it can be linked whatever its current name
    std::string link_name;
    int64_t bytes = 0;
    uint64_t xxh3 = 0;
  };
  struct Entry {
    BoxRecord box;
    LogicalPartial logical;
    size_t file = 0;
  };
  std::vector<KeptFile> files_;
  std::vector<Entry> entries_;
  int64_t since_full_ = 0;
};

}  // namespace ms::ckpt
