// Reads the documents of the input, in batches for the worker threads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/data/preprocess.h"

namespace ms::train::detail {

// Work for one thread: some text files to read, some lines of one JSON-lines input, or a text from stdin.
struct InputBatch {
  std::vector<std::string> text_files;  // read by the worker
  std::string lines;                    // whole lines of `source`
  std::string source;                   // names the input in errors
  int64_t first_line = 1;
  std::optional<std::string> text;  // one document that is already in memory
  int64_t size_bytes = 0;
};

// Expands folders, globs and lists of paths: files in the order of the inputs, sorted within a folder.
// Throws kNotFound, kIo.
std::vector<std::string> list_files(const PreprocessOptions& options);

class InputReader {
 public:
  InputReader(std::vector<std::string> files, InputFormat format, std::function<bool()> stopped);
  ~InputReader();
  // The next batch; nullopt at the end, and when `stopped` returns true. Throws kNotFound, kIo, kOutOfMemory.
  std::optional<InputBatch> next();

 private:
  struct Stream;
  InputBatch next_lines();

  std::vector<std::string> files_;
  InputFormat format_;
  std::function<bool()> stopped_;
  size_t next_file_ = 0;
  std::unique_ptr<Stream> stream_;  // the JSON-lines input that is being read
};

}  // namespace ms::train::detail
