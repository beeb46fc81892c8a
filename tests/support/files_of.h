// Reads all files of a folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "tests/support/temporary_folder.h"

namespace ms::test {

// Contents of all files, by relative path.
inline std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[std::filesystem::relative(entry.path(), folder).string()] = read_file(entry.path().string());
  }
  return files;
}

}  // namespace ms::test
