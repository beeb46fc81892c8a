// train/data/tokenizer.h: a tokenizer.json.
#include "tests/fuzz/use_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "tokenizer.json";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    fuzz::use_tokenizer(*train::make_tokenizer({.tokenizer_type = "HuggingFaceTokenizer", .tokenizer_model = path}));
  });
  return 0;
}
