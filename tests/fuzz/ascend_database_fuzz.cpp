// profile/ingest: an Ascend database, up to its analyses.
#include "profile/ingest/load.h"
#include "profile/sections.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "ascend_pytorch_profiler_0.db";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] { profile::analyze(profile::load({path}, {}), profile::sections::every()); });
  return 0;
}
