#include "convert/job_identity.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/io/json.h"
#include "kernels/checksum.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;

void add(const fs::path& file, const std::string& name, kernels::Xxh3& hash) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return;
  const std::string text =
      core::cat(name, '\0', status.st_ino, ' ', status.st_size, ' ', status.st_mtim.tv_sec, '.', status.st_mtim.tv_nsec,
                ' ', status.st_ctim.tv_sec, '.', status.st_ctim.tv_nsec, '\n');
  hash.update(text.data(), text.size());
}

}  // namespace

std::string identity_of(const std::string& path) {
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) return "";
  kernels::Xxh3 hash;
  if (!fs::is_directory(path, error)) {
    add(path, "", hash);
    return core::hex16(hash.digest());
  }
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (!it->is_directory(error)) files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) add(file, fs::relative(file, path, error).string(), hash);
  return core::hex16(hash.digest());
}

}  // namespace ms::convert
