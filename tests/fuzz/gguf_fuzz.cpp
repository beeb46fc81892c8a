// convert/gguf/reader.h, and convert/gguf_source.h with the file beside a model that it does not match.
#include <algorithm>

#include "convert/detect.h"
#include "convert/gguf/reader.h"
#include "convert/gguf_source.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "model.gguf";
  static const auto source = convert::open_source(std::string(MS_TEST_DATA) + "/hf_llama_tiny");
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    const convert::GgufReader reader(path);
    std::vector<std::byte> ends(64 * sizeof(float));
    for (const auto& tensor : reader.tensors()) {
      if (!tensor.has_known_type()) continue;
      const int64_t some = std::min<int64_t>(tensor.elements, 64);
      reader.read(tensor, 0, some, ends.data());
      reader.read(tensor, tensor.elements - some, some, ends.data());
    }
  });
  fuzz::read_or_refuse([&] { convert::prove_gguf(*source, path, nullptr, {}); });
  return 0;
}
