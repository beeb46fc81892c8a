// The files without a name that this process has open below a folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ms::test {

// As paths of /proc that can be truncated: a test then takes away what a file has.
inline std::vector<std::string> nameless_files(const std::filesystem::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && target.starts_with(folder.string()) && target.ends_with("(deleted)")) found.push_back(entry.path());
  }
  return found;
}

}  // namespace ms::test
