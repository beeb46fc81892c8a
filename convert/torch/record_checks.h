// Compares the records of an archive with their CRC-32, each record once: in full before its first use, or while its
// parts are read.
//
// A conversion reads each byte once. Checking a record in advance would read the file twice, or read it again from the
// page cache. So while a source is read in one pass (ckpt/source.h), large reads add their bytes to the CRC by their
// offset in the record, and finish() reads what no read has covered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "convert/torch/crc32.h"
#include "convert/torch/zip_reader.h"

namespace ms::convert {

// Thread-safe. `archive` is the same in all calls, or the same file reopened. All throw kIo, and kCorruptData for a
// record that differs from what was written.
class RecordChecks {
 public:
  explicit RecordChecks(size_t records) : states_(records) {}
  size_t records() const { return states_.size(); }

  // While set, add() may be used instead of check(), and finish() must be called last.
  void set_one_pass(bool one_pass) { one_pass_ = one_pass; }
  // Returns whether a read of this size is to be passed to add().
  bool takes(size_t size_bytes) const { return one_pass_ && size_bytes >= kLeastBytes; }

  // Reads the whole record unless it has been checked. Concurrent callers wait.
  void check(const ZipReader& archive, size_t record);
  // Adds bytes that were read at `offset` of the record. The call that completes the record compares the CRC and throws
  // on a mismatch.
  void add(const ZipReader& archive, size_t record, int64_t offset, std::span<const std::byte> bytes);
  // Returns whether finish() has anything to read. Call after the last add().
  bool has_parts() const;
  // Reads the missing bytes of records that add() has seen a part of.
  void finish(const ZipReader& archive);

 private:
  // Adding a smaller read takes longer than reading its bytes again.
  static constexpr size_t kLeastBytes = size_t{4} << 10;
  struct Parts {
    explicit Parts(int64_t size_bytes) : sum(size_bytes) {}
    std::map<int64_t, int64_t> ranges;  // begin and end of the added ranges; they do not overlap
    int64_t added_bytes = 0;            // bytes already in the sum
    Crc32OfParts sum;
  };
  struct State {
    std::once_flag whole;
    bool is_checked = false;
    std::optional<Parts> parts;
  };
  using Range = std::pair<int64_t, int64_t>;  // begin and end
  // Returns the parts of [begin, end) that no other read has covered, in order, and marks them as covered.
  static std::vector<Range> take_new(Parts& parts, int64_t begin, int64_t end);
  void read_missing(const ZipReader& archive, size_t record);

  bool one_pass_ = false;
  std::mutex mutex_;
  std::deque<State> states_;
};

}  // namespace ms::convert
