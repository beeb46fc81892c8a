// convert/user_family.h: a family as JSON, parsed and written again.
#include "convert/user_family.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "names.json";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    const convert::UserFamily family(path);
    const auto explained = convert::explain_family(family.family());
    const convert::UserFamily again(explained, "explained");
    fuzz::require(convert::explain_family(again.family()) == explained, "what is explained says the same family");
  });
  return 0;
}
