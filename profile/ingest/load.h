// Loads traces into a store: finds the trace files, chooses a reader for each by its first bytes, and combines the
// ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

struct LoadOptions {
  std::vector<int64_t> ranks;  // load only these; empty: all
  int threads = 2;             // reading threads: several files at once, or parts of one
  bool force = false;          // accept files of one rank that overlap in time, and different world sizes
  std::string rank_from_name;  // see rank_of_path.h; if not empty, the only source of a file's rank
  std::shared_ptr<const ClassRules> class_rules;  // null: none
  bool keep_file_order = false;                   // RankTrace's
};

// inputs: files and folders. A folder is searched recursively (symbolic links are not followed); files in it that are
// not traces are counted.
// A file that cannot be read is counted if others can. Throws kNotFound for an input that does not exist, a folder
// without traces, or a rank that is not present; kCorruptData if nothing could be read; kInvalidArgument for two files
// of one rank that overlap, or different world sizes, unless force, and for an invalid rank_from_name.
Store load(const std::vector<std::string>& inputs, const LoadOptions& options);

}  // namespace ms::profile
