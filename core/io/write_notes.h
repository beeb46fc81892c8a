// Records which ranges of its files a job has written, with hashes, so that a later attempt at the same job can keep
// what is intact.
//
// A note alone proves nothing: to keep a range, it is read back and its hash compared. Notes therefore need no ordering
// relative to the data, and a crash only reduces what can be kept. The file is <magic, job hash> and records of 40
// bytes with a checksum each; a truncated or damaged record is ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/io/file.h"

namespace ms::core {

class WriteNotes {
 public:
  // job: a hash of everything that determines the bytes of the files. keep: starts with the notes in `path` if they are
  // of the same job; otherwise with none. Throws kIo.
  WriteNotes(const std::string& path, uint64_t job, bool keep);

  // Records that `bytes` are at `offset` of the file with this index. Thread-safe. Throws kIo.
  void add(int64_t file, int64_t offset, std::span<const std::byte> bytes);
  // The hash of the range as recorded by an earlier attempt; nullopt if it is not recorded with exactly these bounds.
  std::optional<uint64_t> earlier(int64_t file, int64_t offset, int64_t size_bytes) const;
  bool has_earlier() const { return !earlier_.empty(); }

  static uint64_t hash_of(std::span<const std::byte> bytes);

 private:
  struct Range {
    int64_t size_bytes;
    uint64_t xxh3;
  };
  uint64_t job_;
  std::map<std::pair<int64_t, int64_t>, Range> earlier_;  // by file and offset
  File file_;
};

}  // namespace ms::core
