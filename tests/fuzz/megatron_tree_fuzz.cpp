// convert/megatron: pickles in the files of a Megatron checkpoint, with weights and both kinds of optimizer state.
#include "convert/megatron.h"
#include "tests/fuzz/pickle_in_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  // Same as in make_corpus.py.
  static const std::vector<fuzz::PickleInArchive> places = {
      {"megatron/mindspeed_te", "iter_0000001/mp_rank_00/model_optim_rng.pt"},
      {"megatron/legacy_gpt", "iter_0000007/mp_rank_00_000/model_optim_rng.pt"},
      {"megatron/tied_pp2_distributed", "iter_0000007/mp_rank_00_000/distrib_optim.pt"},
      {"megatron/moe_ep2_distributed", "iter_0000007/mp_rank_00_000/model_optim_rng.pt"},
      {"mindspeed_llm/qwen3_dualpipev_noop/mg", "iter_0000001/mp_rank_00_000/model_optim_rng.pt"},
      {"megatron/old_buckets", "iter_0000007/mp_rank_00_000/distrib_optim.pt"},
      {"megatron/mindspeed_latent", "iter_0000001/mp_rank_00_000_000/model_optim_rng.pt"}};
  fuzz::read_with_pickle(places, data, size, [](const std::string& root, std::vector<std::string>& decisions) {
    return convert::open_megatron(root, {}, decisions);
  });
  return 0;
}
