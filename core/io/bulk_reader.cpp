#include "core/io/bulk_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/io/aligned_buffer.h"
#include "core/io/bulk_writer.h"

namespace ms::core {
namespace {

constexpr int64_t kBlock = kDirectAlignment;
constexpr int64_t kRequestBytes = (int64_t{4} << 20) + kBlock;  // 4 MiB at any offset
// Smaller reads go through the page cache: a direct request costs more than its share of the kernel's read-ahead.
constexpr size_t kBulkBytes = size_t{1} << 20;
// Smaller files are read ahead with their header anyway.
constexpr int64_t kLeastFileBytes = int64_t{32} << 20;

static_assert(kRequestBytes <= BulkReader::kBufferBytes);

}  // namespace

BulkReader::BulkReader(const std::string& path) : cached_(File::open_read(path)) {
  if (cached_.size_bytes() < kLeastFileBytes) return;
  direct_ = File::open_read(path);
  const int flags = ::fcntl(direct_.fd(), F_GETFL);
  if (::fcntl(direct_.fd(), F_SETFL, flags | O_DIRECT) != 0) direct_ = {};
}

// Whether most of the range is in the page cache, for example of a file that was just downloaded.
bool BulkReader::is_resident(int64_t offset, size_t size_bytes) const {
  const int64_t page = ::sysconf(_SC_PAGESIZE), begin = offset / page * page;
  const auto length = static_cast<size_t>(offset - begin) + size_bytes;
  void* mapped = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, cached_.fd(), begin);  // never touched
  if (mapped == MAP_FAILED) return false;
  std::vector<unsigned char> pages((length + static_cast<size_t>(page) - 1) / static_cast<size_t>(page));
  const bool known = ::mincore(mapped, length, pages.data()) == 0;
  ::munmap(mapped, length);
  const auto resident = std::count_if(pages.begin(), pages.end(), [](unsigned char bits) { return (bits & 1) != 0; });
  return known && 2 * static_cast<size_t>(resident) > pages.size();
}

void BulkReader::read(std::span<std::byte> out, int64_t offset) const {
  if (out.size() < kBulkBytes || !direct_.is_open() || is_resident(offset, out.size())) {
    return cached_.pread(out, offset);
  }
  try {
    const auto is_multiple = [](auto number) { return static_cast<int64_t>(number) % kBlock == 0; };
    if (!is_multiple(offset) || !is_multiple(reinterpret_cast<uintptr_t>(out.data()))) return read_copied(out, offset);
    const size_t whole = out.size() / kBlock * kBlock;
    direct_.pread(out.first(whole), offset);
    cached_.pread(out.subspan(whole), offset + static_cast<int64_t>(whole));
  } catch (const Error&) {
    cached_.pread(out, offset);  // file systems with larger blocks; or this throws the real error
  }
}

// Reads through an aligned buffer.
void BulkReader::read_copied(std::span<std::byte> out, int64_t offset) const {
  static thread_local AlignedBuffer buffer;
  buffer.need(static_cast<size_t>(kRequestBytes));
  const int64_t file_end = size_bytes() / kBlock * kBlock;  // end of the last whole block
  while (!out.empty()) {
    const int64_t begin = offset / kBlock * kBlock, wanted = offset + static_cast<int64_t>(out.size());
    const int64_t end = std::min({begin + kRequestBytes, (wanted + kBlock - 1) / kBlock * kBlock, file_end});
    if (end <= offset) return cached_.pread(out, offset);  // the last bytes of the file
    direct_.pread({buffer.data(), static_cast<size_t>(end - begin)}, begin);
    const auto count = static_cast<size_t>(std::min(end, wanted) - offset);
    std::memcpy(out.data(), buffer.data() + (offset - begin), count);
    out = out.subspan(count);
    offset += static_cast<int64_t>(count);
  }
}

}  // namespace ms::core
