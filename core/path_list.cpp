#include "core/path_list.h"

#include <algorithm>

#include "core/error.h"

namespace ms::core {

std::vector<std::string> expand_path_list(const std::vector<std::string>& paths, std::istream& in) {
  if (std::count(paths.begin(), paths.end(), "-") > 1)
    throw Error(ErrorCode::kInvalidArgument, "\"-\" stands for the paths on stdin and may be given once only");
  std::vector<std::string> result;
  for (const std::string& path : paths) {
    if (path.empty()) {  // an unset shell variable
      throw Error(ErrorCode::kInvalidArgument, "an empty path: give a file or folder, or - for the paths on stdin");
    }
    if (path != "-") {
      result.push_back(path);
      continue;
    }
    for (std::string line; std::getline(in, line);) {
      if (!line.empty()) result.push_back(line);
    }
    if (in.bad()) throw Error(ErrorCode::kIo, "read the list of paths: stdin failed");
  }
  return result;
}

}  // namespace ms::core
