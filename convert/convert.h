// One checkpoint into another format: what `msckpt convert` does.
//
// A source, a list of target shards, a sink; ckpt/execute.h moves the bytes between them under a memory bound. What a
// format reads and writes is a row of the table in formats.h; nothing here knows more of it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "convert/convert_options.h"
#include "convert/detect.h"

namespace ms::convert {

struct ConvertReport {
  std::string path;  // what was made; of a dry run: what would be, as far as known
  Format from = Format::kNative;
  Format to = Format::kNative;
  std::string detected_by;             // the rule that told the source's format; "asked for" with load_model_type
  int64_t tensors = 0;                 // canonical ones
  int64_t bytes = 0;                   // written: of weights, and of optimizer state where the target has it
  std::vector<std::string> decisions;  // what was not simply copied, one sentence each
  bool dry_run = false;
  double seconds = 0;
};

// Optimizer state goes into every target but a Hugging Face one, unless drop_optimizer.
// Throws kInvalidArgument (contradicting options; a target that holds a model already), kUnsupported (optimizer state
// for a Hugging Face target without drop_optimizer; a model no family can hold), and what reading, planning and writing
// throw.
ConvertReport convert_checkpoint(const ConvertOptions& options);

nlohmann::json to_json(const ConvertReport& report);  // {"schema": "msckpt/1", "verb": "convert", ...}

}  // namespace ms::convert
