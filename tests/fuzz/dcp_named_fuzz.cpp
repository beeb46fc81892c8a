// convert/dcp_named.h: the metadata of a DCP checkpoint of any model, read with the payloads of tests/data/dcp_fsdp.
#include <filesystem>

#include "convert/named.h"
#include "tests/fuzz/pickle_in_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string folder = [] {
    const std::filesystem::path to = fuzz::folder().path() / "dcp";
    std::filesystem::create_directory(to);
    for (const auto& entry : std::filesystem::directory_iterator(MS_TEST_DATA "/dcp_fsdp")) {
      if (entry.is_regular_file()) std::filesystem::copy_file(entry.path(), to / entry.path().filename());
    }
    return to.string();
  }();
  test::write_file(folder + "/.metadata", std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    std::vector<std::string> decisions;
    fuzz::read_ends(*convert::open_named(folder, false, decisions));
  });
  return 0;
}
