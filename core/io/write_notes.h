// What a job has written of its files, range by range with hashes, so that a later attempt at the same job keeps what
// is still there.
//
// A note proves nothing alone: whoever keeps a range reads it back and compares the hash. So notes need no order
// against the data, and a crash of the machine only makes less of it keepable. The file is <magic, job hash> and
// records of 40 bytes, each with a check of its own; a record that was cut off or damaged is as if it were absent.
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
  // job: stands for everything that decides the bytes of the files. keep: begins with the notes in `path` if they are
  // of the same job; else with none. Throws kIo.
  WriteNotes(const std::string& path, uint64_t job, bool keep);

  // Notes that `bytes` lie at `offset` of the file with this index. Thread-safe. Throws kIo.
  void add(int64_t file, int64_t offset, std::span<const std::byte> bytes);
  // The hash of the range as an earlier attempt noted it; nothing if it did not, or cut its ranges otherwise.
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
