// core/config.h: a --config file, as mstrain reads it.
#include "core/config.h"
#include "core/io/json.h"
#include "tests/fuzz/reader.h"
#include "train/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  fuzz::read_or_refuse([&] {
    train::TrainerConfig config;
    core::ConfigFields fields = config.fields();
    fields.load_json(core::parse_json(fuzz::text_of(data, size), "fuzz"), "fuzz");
    config.resolve_and_validate(8);
    train::TrainerConfig again;
    core::ConfigFields read_back = again.fields();
    read_back.load_json(fields.dump(), "dumped");
    fuzz::require(read_back.hash() == fields.hash(), "--print-config is a --config file that says the same");
  });
  return 0;
}
