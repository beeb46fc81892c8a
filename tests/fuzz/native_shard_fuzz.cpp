// core/io/hdf5.h: a rank file of a checkpoint, as `msckpt verify` reads it.
#include "core/io/hdf5.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "rank_00000.h5";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    const core::H5File file = core::H5File::open_read(path);
    for (const char* object : {"/", "/model", "/model/x", "/packed/param", "/packed/param.index", "/nothing"}) {
      for (const char* name : {"format_version", "dtype", "role", "global_shape", "chunk_xxh3_stored", "nothing"}) {
        fuzz::read_or_refuse([&] { file.attribute_text(object, name); });
        fuzz::read_or_refuse([&] { file.attribute_values(object, name); });
      }
      fuzz::read_or_refuse([&] { file.dataset(object); });
    }
  });
  return 0;
}
