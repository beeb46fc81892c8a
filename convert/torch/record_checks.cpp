#include "convert/torch/record_checks.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "convert/detail/printable.h"
#include "core/error.h"
#include "core/io/file.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr int64_t kPieceBytes = int64_t{1} << 20;

void compare(const ZipReader& archive, size_t record, uint32_t crc) {
  const ZipReader::Entry& entry = archive.entries()[record];
  if (crc == entry.crc32) return;
  throw Error(ErrorCode::kCorruptData,
              cat(archive.where(), ": the storage ", detail::printable(entry.name), ", bytes ", entry.at, " to ",
                  entry.at + entry.bytes, ", does not match its CRC-32: the file is damaged"));
}

// Calls take(offset, bytes) with successive pieces of [begin, end) of a record, read through the page cache because
// small reads of the record follow. Uses its own descriptor: the kernel's read-ahead state is per descriptor.
template <class Take>
void for_each_piece(const ZipReader& archive, size_t record, int64_t begin, int64_t end, const Take& take) {
  const core::File file = core::File::open_read(archive.range().file->path());
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPieceBytes, end - begin)));
  for (int64_t at = begin; at < end; at += kPieceBytes) {
    const std::span<std::byte> bytes(piece.data(), static_cast<size_t>(std::min(kPieceBytes, end - at)));
    file.pread(bytes, archive.range().at + archive.entries()[record].at + at);
    take(at, std::span<const std::byte>(bytes));
  }
}

}  // namespace

void RecordChecks::check(const ZipReader& archive, size_t record) {
  State& state = states_[record];
  std::call_once(state.whole, [&] {
    const ZipReader::Entry& entry = archive.entries()[record];
    {
      std::lock_guard lock(mutex_);
      if (entry.crc32 == 0 || state.is_checked) return;
    }
    uint32_t crc = 0;
    for_each_piece(archive, record, 0, entry.bytes, [&](int64_t, auto bytes) { crc = crc32(crc, bytes); });
    compare(archive, record, crc);
    std::lock_guard lock(mutex_);
    state.is_checked = true;
  });
}

std::vector<RecordChecks::Range> RecordChecks::take_new(Parts& parts, int64_t begin, int64_t end) {
  std::vector<Range> found;
  auto at = parts.ranges.upper_bound(begin);
  if (at != parts.ranges.begin() && std::prev(at)->second > begin) --at;
  for (; at != parts.ranges.end() && at->first < end; ++at) {
    if (at->first > begin) found.emplace_back(begin, at->first);
    begin = std::max(begin, at->second);
  }
  if (begin < end) found.emplace_back(begin, end);
  parts.ranges.insert(found.begin(), found.end());
  return found;
}

void RecordChecks::add(const ZipReader& archive, size_t record, int64_t offset, std::span<const std::byte> bytes) {
  const ZipReader::Entry& entry = archive.entries()[record];
  State& state = states_[record];
  std::vector<Range> ranges;
  {
    std::lock_guard lock(mutex_);
    if (entry.crc32 == 0 || state.is_checked) return;
    if (!state.parts) state.parts.emplace(entry.bytes);
    ranges = take_new(*state.parts, offset, offset + static_cast<int64_t>(bytes.size()));
  }
  int64_t added = 0;
  for (const auto& [begin, end] : ranges) {
    state.parts->sum.add(begin, bytes.subspan(static_cast<size_t>(begin - offset), static_cast<size_t>(end - begin)));
    added += end - begin;
  }
  std::lock_guard lock(mutex_);
  state.parts->added_bytes += added;
  if (added == 0 || state.parts->added_bytes < entry.bytes) return;
  compare(archive, record, state.parts->sum.value());
  state.is_checked = true;
}

void RecordChecks::read_missing(const ZipReader& archive, size_t record) {
  // On a copy, because take_new() marks what it returns as covered.
  Parts seen(0);
  seen.ranges = states_[record].parts->ranges;
  for (const auto& [begin, end] : take_new(seen, 0, archive.entries()[record].bytes)) {
    for_each_piece(archive, record, begin, end, [&](int64_t at, auto bytes) { add(archive, record, at, bytes); });
  }
}

bool RecordChecks::has_parts() const {
  return std::any_of(states_.begin(), states_.end(),
                     [](const State& state) { return state.parts && !state.is_checked; });
}

void RecordChecks::finish(const ZipReader& archive) {
  for (size_t record = 0; record < states_.size(); ++record) {
    const State& state = states_[record];
    if (state.parts && !state.is_checked) read_missing(archive, record);
  }
}

}  // namespace ms::convert
