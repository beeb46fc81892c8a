// convert/megatron: the .metadata of a torch_dist checkpoint with weights and every kind of optimizer state.
//
// An input is the number of the checkpoint (a byte) and its .metadata; the payloads are unchanged.
#include "convert/megatron_dist.h"
#include "tests/fuzz/pickle_in_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  // Same as in make_corpus.py.
  static const std::vector<std::string> folders = [] {
    std::vector<std::string> copies;
    for (const char* name : {"buckets_moe_ep2", "model_space_moe_ep2"}) {
      copies.push_back((fuzz::folder().path() / name).string());
      std::filesystem::copy(core::cat(MS_TEST_DATA "/megatron_dist_kinds/", name, "/iter_0000007"), copies.back(),
                            std::filesystem::copy_options::recursive);
    }
    return copies;
  }();
  if (size == 0 || data[0] >= folders.size()) return 0;
  const std::string& folder = folders[data[0]];
  test::write_file(folder + "/.metadata", std::string(fuzz::text_of(data + 1, size - 1)));
  fuzz::read_or_refuse([&] {
    std::vector<std::string> decisions;
    fuzz::read_ends(*convert::open_megatron_dist(folder, {}, decisions));
  });
  return 0;
}
