// train/data/tokenizer.h: a SentencePiece .model, which its own library reads.
#include "tests/fuzz/use_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "tokenizer.model";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  for (const char* type : {"GPTSentencePieceTokenizer", "SentencePieceTokenizer"}) {
    fuzz::read_or_refuse(
        [&] { fuzz::use_tokenizer(*train::make_tokenizer({.tokenizer_type = type, .tokenizer_model = path})); });
  }
  return 0;
}
