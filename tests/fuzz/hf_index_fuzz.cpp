// convert/huggingface.h: model.safetensors.index.json beside the files of a valid model.
#include <filesystem>

#include "convert/huggingface.h"
#include "tests/fuzz/reader.h"

namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";

const ms::test::TemporaryFolder& model_without_index() {
  const ms::test::TemporaryFolder& folder = ms::fuzz::folder();
  static const bool made = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(MS_TEST_DATA "/hf_llama_tiny_sharded")) {
      const std::string name = entry.path().filename();
      if (name != kIndexName) std::filesystem::copy_file(entry.path(), folder / name);
    }
    return true;
  }();
  (void)made;
  return folder;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  const test::TemporaryFolder& folder = model_without_index();
  test::write_file(folder / kIndexName, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    const auto source = convert::open_huggingface(folder.path().string());
    fuzz::require(!source->shards().empty(), "a model that opens has tensors");
  });
  return 0;
}
