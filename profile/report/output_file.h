// Writes a file in pieces, compressed if wanted. The file appears under its name when it is complete, or not at all.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ms::profile {

enum class Compression { kNone, kGzip, kZstd };

class OutputFile {
 public:
  // Writes to path + ".tmp" until finish(). Throws kIo.
  OutputFile(std::string path, Compression compression);
  ~OutputFile();  // removes the temporary file unless finish() was called
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);  // throws kIo
  void finish();                      // renames; throws kIo

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::profile
