// profile/class_rules.h: user-defined rules for the class of a kernel.
#include "profile/class_rules.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  fuzz::read_or_refuse([&] {
    const std::string path = fuzz::folder() / "rules.json";
    test::write_file(path, std::string(fuzz::text_of(data, size)));
    const profile::ClassRules rules(path);
    for (const char* name : {"", "ncclDevKernel_AllReduce_Sum_f32", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
      fuzz::require(rules.find(name) == rules.find(name), "the same name has the same class");
    }
  });
  return 0;
}
