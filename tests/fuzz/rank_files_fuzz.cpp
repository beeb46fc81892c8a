// convert/torch/rank_files.h: the rank files of an FSDP job, with DTensors, mesh and placements.
#include "convert/named.h"
#include "tests/fuzz/pickle_in_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  // Same as in make_corpus.py.
  static const std::vector<fuzz::PickleInArchive> places = {{"fsdp_ranks/shard_2", "model_world_size_2_rank_1.pt"},
                                                            {"fsdp_ranks/shard_2", "optim_world_size_2_rank_0.pt"},
                                                            {"fsdp_ranks/tp_4", "model_world_size_4_rank_0.pt"}};
  fuzz::read_with_pickle(places, data, size, [](const std::string& root, std::vector<std::string>& decisions) {
    return convert::open_named(root, false, decisions);
  });
  return 0;
}
