#include "core/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "kernels/checksum.h"

namespace ms::core {
namespace {

// The beginning of a small file; empty if there is none.
class SmallFile {
 public:
  explicit SmallFile(const char* path) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    const ssize_t size = ::read(file, buffer_.data(), buffer_.size());
    ::close(file);
    size_ = size > 0 ? static_cast<size_t>(size) : 0;
  }

  // The number behind the first `name`; nullopt: there is none.
  std::optional<int64_t> number_after(std::string_view name) const {
    std::string_view text(buffer_.data(), size_);
    const size_t at = text.find(name);
    if (at == std::string_view::npos) return std::nullopt;
    text.remove_prefix(at + name.size());
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    int64_t number = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
    return fault == std::errc() ? std::optional(number) : std::nullopt;
  }

 private:
  std::array<char, 4096> buffer_;
  size_t size_ = 0;
};

}  // namespace

// Not getrusage: its peak starts at that of the program that started this one.
int64_t peak_resident_bytes() { return SmallFile("/proc/self/status").number_after("VmHWM:").value_or(0) * 1024; }

int64_t available_memory_bytes() {
  const int64_t host = SmallFile("/proc/meminfo").number_after("MemAvailable:").value_or(0) * 1024;
  // Of the group that a container sees as its own. "max": no limit.
  const std::optional<int64_t> limit = SmallFile("/sys/fs/cgroup/memory.max").number_after("");
  if (!limit) return host;
  const int64_t used = SmallFile("/sys/fs/cgroup/memory.stat").number_after("anon ").value_or(0);
  return std::min(host, std::max<int64_t>(0, *limit - used));
}

int64_t host_id() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  kernels::Xxh3 id;
  id.update(host.data(), host.size());
  return static_cast<int64_t>(id.digest());
}

}  // namespace ms::core
