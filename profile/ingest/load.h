// From what the user named to a store: finds the trace files, chooses a reader for each by its first bytes, and puts
// the ranks together (traces.md 2).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

struct LoadOptions {
  std::vector<int64_t> ranks;  // keep only these; empty: all
  int threads = 2;             // that read: several files at once, or parts of one
  bool force = false;          // accept two files of one rank that overlap in time, and different world sizes
  std::string rank_from_name;  // rank_of_path.h; not empty: it alone says of which rank a file is
  std::shared_ptr<const ClassRules> class_rules;  // null: none
  bool keep_file_order = false;                   // RankTrace's
};

// inputs: files and folders. A folder is searched recursively (symbolic links not followed), files in it that are no
// traces are counted.
// A file that cannot be read is counted when others can; throws kNotFound for an input that does not exist, a folder
// without traces, or a rank that is not there; kCorruptData if nothing could be read; kInvalidArgument for two files of
// one rank that overlap, or different world sizes, unless force, and for a bad rank_from_name.
Store load(const std::vector<std::string>& inputs, const LoadOptions& options);

}  // namespace ms::profile
