// convert/huggingface_config.h: config.json, parsed and written again.
#include "convert/huggingface_config.h"
#include "core/io/json.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "config.json";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    const convert::HfConfig config = convert::read_hf_config(path);
    config.model.validate();
    const nlohmann::json made = convert::make_hf_config(config.model, config.original, core::DType::kFp32);
    fuzz::require(convert::same_model(convert::parse_hf_config(made, "made").model, config.model),
                  "what is written says the same model");
  });
  return 0;
}
