// convert/deepspeed: pickles of the model states and of ZeRO's optimizer states.
#include "convert/deepspeed.h"
#include "tests/fuzz/pickle_in_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  // Same as in make_corpus.py.
  static const std::vector<fuzz::PickleInArchive> places = {
      {"deepspeed/zero1", "global_step3/mp_rank_00_model_states.pt"},
      {"deepspeed/zero1", "global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"},
      {"deepspeed/zero3", "global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"}};
  const bool zero3 = size > 0 && data[0] == 2;
  const convert::HfNamedOptions options{
      core::cat(MS_TEST_DATA "/deepspeed/expected/", zero3 ? "zero3" : "zero1", "/param"), false};
  fuzz::read_with_pickle(places, data, size, [&](const std::string& root, std::vector<std::string>& decisions) {
    return convert::open_deepspeed(root, options, decisions);
  });
  return 0;
}
