// From what the ranks wrote to one manifest.
#pragma once

#include <string>
#include <vector>

#include "ckpt/detail/rank_file.h"
#include "ckpt/manifest.h"

namespace ms::ckpt {

// Fills files and tensors of the manifest from the records of all rank files, in the order given (records without boxes
// are left out). Throws kInternal if the boxes of a tensor do not tile it or contradict in shape or dtype: the saver
// was given wrong shards.
void assemble_tensors(Manifest& manifest, const std::vector<RankFileRecord>& records);

// A record as bytes, for the message from a rank to the coordinator.
std::string encode_record(const RankFileRecord& record);
RankFileRecord decode_record(const std::string& bytes);

}  // namespace ms::ckpt
