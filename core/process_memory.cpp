#include "core/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace ms::core {

// Not getrusage: its peak starts at that of the program that started this one.
int64_t peak_resident_bytes() {
  const int file = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 4096> buffer;
  const ssize_t size = ::read(file, buffer.data(), buffer.size());
  ::close(file);
  std::string_view text(buffer.data(), size > 0 ? static_cast<size_t>(size) : 0);
  constexpr std::string_view kName = "VmHWM:";
  const size_t at = text.find(kName);
  if (at == std::string_view::npos) return 0;
  text.remove_prefix(at + kName.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t kilobytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), kilobytes);
  return kilobytes * 1024;
}

}  // namespace ms::core
