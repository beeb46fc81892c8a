// core/io/yaml.h and train/megatron_yaml.h: a --yaml-cfg file, as mstrain reads it.
#include "core/config.h"
#include "core/io/yaml.h"
#include "tests/fuzz/reader.h"
#include "train/config.h"
#include "train/megatron_yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  fuzz::read_or_refuse([&] {
    const auto yaml = core::parse_yaml(fuzz::text_of(data, size), "fuzz");
    train::TrainerConfig config;
    core::ConfigFields fields = config.fields();
    fields.parse_flags(train::flags_of_megatron_yaml(yaml, fields, "fuzz"));
    config.resolve_and_validate(8);
  });
  return 0;
}
