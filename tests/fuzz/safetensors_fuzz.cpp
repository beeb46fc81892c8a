// convert/safetensors.h: the header of a file, in memory.
#include <cstring>

#include "convert/safetensors.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  fuzz::read_or_refuse([&] {
    const auto read = [&](uint64_t offset, std::span<std::byte> out) {
      fuzz::require(offset <= size && out.size() <= size - offset, "the reader stays inside the file");
      if (!out.empty()) std::memcpy(out.data(), data + offset, out.size());
    };
    const convert::SafetensorsHeader header = convert::parse_safetensors_header(size, read, "fuzz");
    uint64_t at = 0;
    for (size_t i = 0; i < header.size(); ++i) {
      const auto tensor = header[i];
      fuzz::require(tensor.begin == at && tensor.end >= at, "the ranges tile the data");
      fuzz::require(header.find(tensor.name) == i, "every tensor is found by its name");
      at = tensor.end;
    }
    fuzz::require(header.data_start() + at == size, "the ranges reach the end of the file");
  });
  return 0;
}
