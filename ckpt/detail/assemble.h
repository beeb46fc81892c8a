// Builds one manifest from the records of all rank files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ckpt/detail/rank_file.h"
#include "ckpt/manifest.h"

namespace ms::ckpt {

// Fills files and tensors of the manifest from the records of all rank files, in the order given (records without boxes
// are skipped). Files of cut cells in `directory` are read and removed. Throws kInternal if the boxes of a tensor do
// not tile it or differ in shape or dtype: the saver was given wrong shards.
void assemble_tensors(Manifest& manifest, const std::vector<RankFileRecord>& records,
                      const std::filesystem::path& directory);

// Serialises records for a rank's report to the coordinator.
std::string encode_records(const std::vector<RankFileRecord>& records);
std::vector<RankFileRecord> decode_records(const std::string& bytes);

}  // namespace ms::ckpt
