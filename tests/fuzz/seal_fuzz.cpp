// ckpt/seal.h: a seal beside a checkpoint, made by someone else.
#include "ckpt/seal.h"
#include "core/io/file.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  fuzz::read_or_refuse([&] {
    const ckpt::Seal seal = ckpt::parse_seal(fuzz::text_of(data, size), "fuzz");
    const std::string dumped = ckpt::dump_seal(seal);
    fuzz::require(ckpt::dump_seal(ckpt::parse_seal(dumped, "dumped")) == dumped, "dump and parse are inverse");
    ckpt::verify_files(fuzz::folder().path(), seal, {});  // the folder is empty: the seal must not lead outside it
  });
  return 0;
}
