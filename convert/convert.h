// One checkpoint into another format: what `msckpt convert` does.
//
// A source, a list of target shards, a sink; ckpt/execute.h moves the bytes between them under a memory bound. What a
// format reads and writes is a row of the table in formats.h; nothing here knows more of it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/hashing_sink.h"
#include "ckpt/prove.h"
#include "convert/convert_options.h"
#include "convert/detect.h"

namespace ms::convert {

struct ConvertReport {
  std::string path;  // what was made; empty in a dry run
  std::string save_dir;
  Format from = Format::kNative;
  Format to = Format::kNative;
  std::string detected_by;             // the rule that told the source's format; "asked for" with load_model_type
  int64_t tensors = 0;                 // canonical ones
  int64_t bytes = 0;                   // written: of weights, and of optimizer state where the target has it
  int64_t kept_bytes = 0;              // of these, what an earlier attempt had written (resume)
  std::vector<std::string> decisions;  // what was not simply copied, one sentence each
  // What came along from the source, what of it is not in the result, and what a flag says instead of the source; a
  // line each.
  std::vector<std::string> carried, dropped, from_flags;
  int64_t iteration = 0;                     // of the source
  nlohmann::json settings;                   // of the run, as the source says them
  std::vector<ckpt::WrittenTensor> written;  // with logical hashes
  std::optional<ckpt::ProofReport> proof;    // with ConvertOptions::prove
  std::string kept_at;                       // where the report lies beside the result (report.h); empty: nowhere
  bool dry_run = false;
  double seconds = 0;
};

// Optimizer state goes into every target but a Hugging Face one, unless drop_optimizer.
// The report is kept beside the result (report.h), after it has been committed. A proof that fails is in the report; it
// does not throw, and the result stays.
// Throws kInvalidArgument (contradicting options; a target that holds a model already), kUnsupported (optimizer state
// for a Hugging Face target without drop_optimizer; a model no family can hold), and what reading, planning and writing
// throw.
ConvertReport convert_checkpoint(const ConvertOptions& options);

nlohmann::json to_json(const ConvertReport& report);  // {"schema": "msckpt/1", "verb": "convert", ...}

}  // namespace ms::convert
