// profile/ingest: one file of any format, detected by its first bytes, loaded into the store and no further: fast
// enough for a million inputs. The targets of single formats also run analyses and conversions.
#include "profile/ingest/load.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "trace";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    profile::LoadOptions options;
    options.threads = 1 + static_cast<int>(size % 2);  // 2: another thread decompresses
    profile::load({path}, options);
  });
  return 0;
}
