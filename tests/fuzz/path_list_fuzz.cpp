// core/path_list.h: paths that a chain of tools passes through stdin.
#include <sstream>

#include "core/path_list.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  fuzz::read_or_refuse([&] {
    std::istringstream in{std::string(fuzz::text_of(data, size))};
    const auto paths = core::expand_path_list({"first", "-", "last"}, in);
    fuzz::require(paths.size() >= 2 && paths.front() == "first" && paths.back() == "last", "the order is kept");
    for (const std::string& path : paths) {
      fuzz::require(!path.empty() && path.find('\n') == std::string::npos, "a path is a line that is not empty");
    }
  });
  return 0;
}
