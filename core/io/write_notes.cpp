#include "core/io/write_notes.h"

#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "kernels/checksum.h"

namespace ms::core {
namespace {

constexpr char kMagic[8] = {'m', 's', 'n', 'o', 't', 'e', 's', '1'};
constexpr int64_t kMaxBytes = int64_t{1} << 30;

struct Record {
  int64_t file, offset, size_bytes;
  uint64_t xxh3, check;
};
static_assert(sizeof(Record) == 40);

uint64_t check_of(const Record& record, uint64_t job) { return kernels::xxh3(&record, offsetof(Record, check)) ^ job; }

std::string header_of(uint64_t job) {
  std::string header(kMagic, sizeof kMagic);
  header.append(reinterpret_cast<const char*>(&job), sizeof job);
  return header;
}

std::string_view bytes_of(const Record& record) { return {reinterpret_cast<const char*>(&record), sizeof record}; }

}  // namespace

uint64_t WriteNotes::hash_of(std::span<const std::byte> bytes) { return kernels::xxh3(bytes.data(), bytes.size()); }

WriteNotes::WriteNotes(const std::string& path, uint64_t job, bool keep) : job_(job) {
  std::string text = header_of(job);
  std::error_code absent;
  if (keep && std::filesystem::is_regular_file(path, absent)) {
    const std::string there = read_text(path, kMaxBytes);
    if (there.starts_with(text)) {
      for (size_t at = text.size(), end; (end = at + sizeof(Record)) <= there.size(); at = end) {
        Record record;
        std::memcpy(&record, there.data() + at, sizeof record);
        if (record.check != check_of(record, job)) break;  // later records may be misaligned
        earlier_[{record.file, record.offset}] = {record.size_bytes, record.xxh3};
      }
    }
  }
  for (const auto& [place, range] : earlier_) {
    Record record{place.first, place.second, range.size_bytes, range.xxh3, 0};
    record.check = check_of(record, job);
    text += bytes_of(record);
  }
  write_text_atomically(path, text);
  file_ = File::open_append(path);
}

void WriteNotes::add(int64_t file, int64_t offset, std::span<const std::byte> bytes) {
  Record record{file, offset, static_cast<int64_t>(bytes.size()), hash_of(bytes), 0};
  record.check = check_of(record, job_);
  file_.append(std::as_bytes(std::span(bytes_of(record))));  // one write(2) with O_APPEND: records do not mix
}

std::optional<uint64_t> WriteNotes::earlier(int64_t file, int64_t offset, int64_t size_bytes) const {
  const auto found = earlier_.find({file, offset});
  if (found == earlier_.end() || found->second.size_bytes != size_bytes) return std::nullopt;
  return found->second.xxh3;
}

}  // namespace ms::core
