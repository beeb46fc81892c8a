// convert/torch: a torch.save file: archive, pickle, and the ranges of its tensors.
#include <string>
#include <vector>

#include "convert/torch/state_dict.h"
#include "convert/torch/torch_file.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "pytorch_model.bin";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    const auto file = convert::open_state_dict(path);
    for (size_t i = 0; i < file->size(); ++i) {
      const auto tensor = (*file)[i];
      const uint64_t bytes = tensor.end - tensor.begin;
      std::vector<std::byte> out(std::min<uint64_t>(bytes, 4096) / 8 * 8);  // whole elements of every type
      fuzz::read_or_refuse([&] { file->read(tensor.begin, out); });
    }
  });
  return 0;
}
