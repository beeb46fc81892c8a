// convert/named.h: a file of any kind with named tensors, detected by its content.
#include "convert/named.h"
#include "tests/fuzz/pickle_in_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "weights";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    std::vector<std::string> decisions;
    fuzz::read_ends(*convert::open_named(path, false, decisions));
  });
  return 0;
}
