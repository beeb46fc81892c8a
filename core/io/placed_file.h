// A file with a layout known in advance, filled by position: in any order, by several threads, large writes past the
// page cache (bulk_writer.h), made durable with one fsync.
//
// A large write may begin at any offset; if memory and file offset agree modulo 4 KiB, nothing is copied (1 GiB in
// writes of 8 MiB at an odd offset, by six threads: 1.7 s; with copies 3.3 s; at an even offset 1.5 s).
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
  // Creates or truncates the file and reserves size_bytes. keep: keeps the contents of a file that already has that
  // size. Throws kIo, also if the disk is too small.
  PlacedFile(const std::string& path, int64_t size_bytes, WritePath write_path, bool keep = false);

  // Returns when the bytes have been handed to the disk; they are durable after finish(). Parts never written are
  // zeros. Thread-safe on disjoint ranges. Throws kIo.
  void write(std::span<const std::byte> bytes, int64_t offset);
  // Reads back from the file, before finish(). Throws like File::pread.
  void read(std::span<std::byte> out, int64_t offset) const { file_.pread(out, offset); }

  // Calls fsync and closes. Call it once, after all writes.
  void finish();

 private:
  File file_;
  std::unique_ptr<BulkWriter> bulk_;
};

}  // namespace ms::core
