// A file whose layout is known beforehand, filled by position: in any order, by several threads, large writes past the
// page cache (bulk_writer.h), durable with one fsync.
//
// A large write may begin anywhere; where memory and file have the same offset within 4 KiB, none of it is copied (1
// GiB in writes of 8 MiB at an odd place, by six threads: 1.7 s, with copies 3.3 s, at an even place 1.5 s).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/io/bulk_writer.h"
#include "core/io/file.h"

namespace ms::core {

class PlacedFile {
 public:
  // Creates or empties the file and reserves size_bytes. keep: what is there stays if it has that size already. Throws
  // kIo, also if the disk is too small.
  PlacedFile(const std::string& path, int64_t size_bytes, WritePath write_path, bool keep = false);

  // Returns when the bytes are handed to the disk; they are durable after finish(). What is never written is zeros.
  // Thread-safe on disjoint ranges. Throws kIo.
  void write(std::span<const std::byte> bytes, int64_t offset);
  // What is in the file, before finish(). Throws as File::pread.
  void read(std::span<std::byte> out, int64_t offset) const { file_.pread(out, offset); }

  // fsync and close. Once, after all writes.
  void finish();

 private:
  File file_;
  std::unique_ptr<BulkWriter> bulk_;
};

}  // namespace ms::core
