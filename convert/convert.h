// Converts one checkpoint into another format: the implementation of `msckpt convert`.
//
// It opens a source, lists target shards and makes a sink; ckpt/execute.h moves the bytes between them under a memory
// bound. What is specific to a format is in its row of the table in formats.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/hashing_sink.h"
#include "ckpt/prove.h"
#include "convert/convert_options.h"
#include "convert/detect.h"
#include "core/io/json.h"

namespace ms::convert {

struct ConvertReport {
  std::string path;  // path of the result; empty in a dry run
  std::string save_dir;
  Format from = Format::kNative;
  Format to = Format::kNative;
  std::string detected_by;             // the rule that detected the source's format, or "--load-model-type"
  int64_t tensors = 0;                 // canonical tensors
  int64_t bytes = 0;                   // bytes written: weights, and optimizer state if the target has it
  int64_t kept_bytes = 0;              // of these, already written by an earlier attempt (resume)
  std::vector<std::string> decisions;  // one sentence each for what was not simply copied
  // One line each: what was taken from the source, what was left out, and where a flag replaced the source's value.
  std::vector<std::string> carried, dropped, from_flags;
  int64_t iteration = 0;                     // of the source
  nlohmann::json settings;                   // settings of the run, from the source
  std::vector<ckpt::WrittenTensor> written;  // with logical hashes
  std::optional<ckpt::ProofReport> proof;    // with ConvertOptions::prove
  std::string kept_at;  // path of the report, stored next to the result (report.h); empty: not stored
  bool dry_run = false;
  double seconds = 0;
};

// Optimizer state goes into every target except Hugging Face folders, unless drop_optimizer is set. The report is
// stored next to the result (report.h) after the result has been committed. A failed proof is recorded in the report;
// it does not throw, and the result stays. Throws kInvalidArgument (contradictory options; the target already holds a
// model), kUnsupported (optimizer state for a Hugging Face target without drop_optimizer; a model that no family can
// express), and whatever reading, planning and writing throw.
ConvertReport convert_checkpoint(const ConvertOptions& options);

nlohmann::json to_json(const ConvertReport& report);  // {"schema": "msckpt/1", "verb": "convert", ...}

}  // namespace ms::convert
