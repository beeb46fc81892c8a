// From text to indexed data sets: what `msdata preprocess` does (Megatron's tools/preprocess_data.py).
//
// One thread reads and writes, `workers` threads tokenize. Documents are written in the order of the input, so that the
// result does not depend on the number of workers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/indexed_dataset.h"
#include "train/data/tokenizer.h"

namespace ms::train {

enum class InputFormat {
  kAuto,   // .jsonl, .json and stdin are JSON lines, everything else is one document a file
  kText,   // one document a file
  kJsonl,  // one JSON object a line
  kPaths,  // the input lists paths, one a line
};
InputFormat parse_input_format(std::string_view text);  // auto, text, jsonl, paths; else kInvalidArgument

struct PreprocessOptions {
  std::vector<std::string> inputs;                        // files, folders (searched for `globs`), or "-" for stdin
  std::vector<std::string> globs = {"*.txt", "*.jsonl"};  // of names in folders; of paths in them if it has a '/'
  InputFormat format = InputFormat::kAuto;
  std::string output_prefix;
  std::vector<std::string> json_keys = {"text"};
  TokenizerChoice tokenizer;
  bool append_eod = false;
  bool skip_bad_lines = false;  // leave out and count lines that are no document, instead of throwing
  int workers = 0;              // threads that tokenize; 0: as many as the machine has
};

// One data set for each JSON key; text files have the first key alone.
struct PreprocessedSet {
  std::string key;
  std::string prefix;  // <output_prefix>_<key>_document
  TokenType token_type = TokenType::kUint16;
  int64_t documents = 0;
  int64_t tokens = 0;
  double unigram_entropy = 0;  // nats per token
};

struct PreprocessResult {
  std::vector<PreprocessedSet> sets;
  std::vector<std::string> files;   // that were, or would be, read, in order; "-" is stdin
  int64_t input_bytes = 0;          // of files, by their sizes when it began; stdin is added when read
  int64_t malformed_documents = 0;  // with bytes that are not UTF-8
  int64_t empty_documents = 0;
  int64_t skipped_lines = 0;       // with skip_bad_lines
  std::string first_skipped_line;  // FILE:LINE: what is wrong with it
  double seconds = 0;
};

// The files that the options name, without reading them. Throws kNotFound (a path, or nothing that matches a glob),
// kIo.
PreprocessResult plan_preprocess(const PreprocessOptions& options);

// stopped: asked between documents; true ends the work, removes what was written and throws kIo "stopped".
// Throws kInvalidArgument, kUnsupported, kNotFound, kCorruptData (bad JSON, as FILE:LINE), kIo. Nothing is left behind
//   under the final names, nor temporary files, in any of these cases.
PreprocessResult preprocess(const PreprocessOptions& options, const std::function<bool()>& stopped);

}  // namespace ms::train
