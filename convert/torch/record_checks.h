// Compares the records of an archive with their CRC-32, each once: whole before its first use, or as its parts are
// read.
//
// A conversion reads each byte once. A pass over the record before that reads the file twice, or once more out of the
// page cache; so while a source is read in one pass (ckpt/source.h), what large reads bring is added up by its place in
// the record, and finish() reads what nobody asked for.
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

// Thread-safe. `archive` is the same in all calls, or the same file opened again. Throw kIo, and kCorruptData for a
// record that is not what was written.
class RecordChecks {
 public:
  explicit RecordChecks(size_t records) : states_(records) {}
  size_t records() const { return states_.size(); }

  // While it is set add() may stand for check(), and finish() comes last.
  void set_one_pass(bool one_pass) { one_pass_ = one_pass; }
  // Whether a read of so many bytes is to be added.
  bool takes(size_t size_bytes) const { return one_pass_ && size_bytes >= kLeastBytes; }

  // Reads all of the record if nobody has. Who asks meanwhile waits.
  void check(const ZipReader& archive, size_t record);
  // These bytes, from `offset` of the record on, have been read. Throws with the record's last part.
  void add(const ZipReader& archive, size_t record, int64_t offset, std::span<const std::byte> bytes);
  // Whether finish() has anything to read. After the last add().
  bool has_parts() const;
  // Reads what is missing of the records that add() has seen a part of.
  void finish(const ZipReader& archive);

 private:
  static constexpr size_t kLeastBytes = size_t{64} << 10;  // smaller ones cost more to add than to read twice
  struct Parts {
    explicit Parts(int64_t size_bytes) : sum(size_bytes) {}
    std::map<int64_t, int64_t> ranges;  // begin and end of those that are added; they do not overlap
    int64_t added_bytes = 0;            // of which the sum knows
    Crc32OfParts sum;
  };
  struct State {
    std::once_flag whole;
    bool is_checked = false;
    std::optional<Parts> parts;
  };
  using Range = std::pair<int64_t, int64_t>;  // begin and end
  // Of [begin, end) what no other read has brought, in order; it is brought now.
  static std::vector<Range> take_new(Parts& parts, int64_t begin, int64_t end);
  void read_missing(const ZipReader& archive, size_t record);

  bool one_pass_ = false;
  std::mutex mutex_;
  std::deque<State> states_;
};

}  // namespace ms::convert
