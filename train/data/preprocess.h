// Turns text into indexed data sets: the implementation of `msdata preprocess` (Megatron's tools/preprocess_data.py).
//
// One thread reads and writes, `workers` threads tokenize. Documents are written in the order of the input, so the
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
  kAuto,   // .jsonl, .json and stdin are JSON lines, everything else is one document per file
  kText,   // one document per file
  kJsonl,  // one JSON object per line
  kPaths,  // the input lists paths, one per line
};
InputFormat parse_input_format(std::string_view text);  // auto, text, jsonl, paths; else kInvalidArgument

struct PreprocessOptions {
  std::vector<std::string> inputs;  // files, folders (searched for `globs`), or "-" for stdin
  std::vector<std::string> globs = {"*.txt",
                                    "*.jsonl"};  // match names in folders; or paths in them, if the glob contains a '/'
  InputFormat format = InputFormat::kAuto;
  std::string output_prefix;
  std::vector<std::string> json_keys = {"text"};
  TokenizerChoice tokenizer;
  bool append_eod = false;
  bool skip_bad_lines = false;  // skip and count lines that are not a document, instead of throwing
  int workers = 0;              // threads that tokenize; 0: as many as the machine has
};

// One data set per JSON key; text files have only the first key.
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
  std::vector<std::string> files;   // files that were, or would be, read, in order; "-" is stdin
  int64_t input_bytes = 0;          // sum of the files' sizes at the start; stdin is added as it is read
  int64_t malformed_documents = 0;  // documents with bytes that are not UTF-8
  int64_t empty_documents = 0;
  int64_t skipped_lines = 0;       // with skip_bad_lines
  std::string first_skipped_line;  // FILE:LINE: what is wrong with it
  double seconds = 0;
};

// Lists the files that the options select, without reading them. Throws kNotFound (a path, or no match for a glob),
// kIo.
PreprocessResult plan_preprocess(const PreprocessOptions& options);

// stopped: called between documents; if it returns true, what was written is removed and kIo "stopped" is thrown.
// Throws kInvalidArgument, kUnsupported, kNotFound, kCorruptData (bad JSON, as FILE:LINE), kIo. In all these cases
//   nothing is left, neither under the final names nor as temporary files.
PreprocessResult preprocess(const PreprocessOptions& options, const std::function<bool()>& stopped);

}  // namespace ms::train
