// convert/torch: the metadata of a DCP checkpoint whose payloads are those of tests/data/dcp.
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "convert/dcp_optimizer.h"
#include "convert/torch/dcp_reader.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string folder = [] {
    std::filesystem::copy(MS_TEST_DATA "/dcp", fuzz::folder().path(),
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    return fuzz::folder().path().string();
  }();
  test::write_file(folder + "/.metadata", std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    const convert::DcpReader reader(folder);
    for (const auto& entry : reader.tensors()) {
      const convert::DcpReader::Tensor& tensor = entry.second;
      for (const auto& chunk : tensor.chunks) {
        if (core::num_elements(chunk.extent) > 1 << 16) continue;
        std::vector<std::byte> out(static_cast<size_t>(core::num_elements(chunk.extent)) * 16);
        fuzz::read_or_refuse(
            [&] { reader.read(tensor, chunk, core::Dims(chunk.extent.size(), 0), chunk.extent, out.data()); });
      }
    }
    for (const auto& entry : reader.objects()) {
      fuzz::read_or_refuse([&] { reader.open_object(entry.second).root(); });
    }
    const std::vector<std::string> names = {"weight", "model.norm.weight"};
    fuzz::read_or_refuse([&] { convert::read_dcp_optimizer(reader, "optim.state.", names); });
    fuzz::read_or_refuse([&] {
      std::set<std::string> used;
      std::vector<std::string> decisions;
      convert::read_dcp_scheduler(reader, used, decisions);
    });
  });
  return 0;
}
