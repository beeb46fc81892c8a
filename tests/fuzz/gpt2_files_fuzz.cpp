// train/data/tokenizer.h: GPT-2's vocab.json, then, after a NUL, its merges.txt.
#include "tests/fuzz/use_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string vocab = fuzz::folder() / "vocab.json";
  static const std::string merges = fuzz::folder() / "merges.txt";
  const std::string_view files = fuzz::text_of(data, size);
  const size_t end = std::min(files.find('\0'), files.size());
  test::write_file(vocab, std::string(files.substr(0, end)));
  test::write_file(merges, std::string(files.substr(std::min(end + 1, files.size()))));
  fuzz::read_or_refuse([&] {
    fuzz::use_tokenizer(
        *train::make_tokenizer({.tokenizer_type = "GPT2BPETokenizer", .vocab_file = vocab, .merge_file = merges}));
  });
  return 0;
}
