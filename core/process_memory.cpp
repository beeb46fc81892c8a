#include "core/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
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

  // What follows `name` on its line.
  std::optional<std::string_view> rest_of_line_after(std::string_view name) const {
    std::string_view text(buffer_.data(), size_);
    const size_t at = text.find(name);
    if (at == std::string_view::npos) return std::nullopt;
    text.remove_prefix(at + name.size());
    return text.substr(0, text.find('\n'));
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

// What a control group (version 2) may still take; nullopt: it has no limit ("max"), or is none.
std::optional<int64_t> left_in_group(std::string_view group) {
  std::array<char, 1024> path{};
  const auto file = [&](const char* name) {
    std::snprintf(path.data(), path.size(), "/sys/fs/cgroup%.*s/%s", static_cast<int>(group.size()), group.data(),
                  name);
    return SmallFile(path.data());
  };
  const std::optional<int64_t> limit = file("memory.max").number_after("");
  if (!limit) return std::nullopt;
  // Pages of files that are not in use can be taken back.
  const int64_t used = file("memory.current").number_after("").value_or(0);
  const int64_t unused = file("memory.stat").number_after("inactive_file ").value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, used - unused));
}

}  // namespace

// Not getrusage: its peak starts at that of the program that started this one.
int64_t peak_resident_bytes() { return SmallFile("/proc/self/status").number_after("VmHWM:").value_or(0) * 1024; }

int64_t available_memory_bytes() {
  const int64_t host = SmallFile("/proc/meminfo").number_after("MemAvailable:").value_or(0) * 1024;
  // This process's group and those around it, up to the one that a container sees as the root.
  const SmallFile groups("/proc/self/cgroup");
  std::string_view group = groups.rest_of_line_after("0::").value_or("/");
  int64_t available = host;
  for (;;) {
    if (const std::optional<int64_t> left = left_in_group(group)) available = std::min(available, *left);
    if (group.size() <= 1) return available;
    group = group.substr(0, std::max<size_t>(1, group.rfind('/')));
  }
}

int64_t host_id() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  kernels::Xxh3 id;
  id.update(host.data(), host.size());
  return static_cast<int64_t>(id.digest());
}

}  // namespace ms::core
