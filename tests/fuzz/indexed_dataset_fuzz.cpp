// train/data/indexed_dataset.h: 4 bytes with the size of the .idx, then the .idx, then the .bin.
#include <cstring>

#include "tests/fuzz/reader.h"
#include "train/data/indexed_dataset.h"
#include "train/data/statistics.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  uint32_t idx_bytes = 0;
  if (size < sizeof idx_bytes) return 0;
  std::memcpy(&idx_bytes, data, sizeof idx_bytes);
  const std::string_view files = fuzz::text_of(data, size).substr(sizeof idx_bytes);
  const std::string_view idx = files.substr(0, idx_bytes);
  static const std::string prefix = fuzz::folder() / "set";
  test::write_file(train::idx_path(prefix), std::string(idx));
  test::write_file(train::bin_path(prefix), std::string(files.substr(idx.size())));
  for (const bool use_mmap : {true, false}) {
    fuzz::read_or_refuse([&] {
      const train::IndexedDataset dataset(prefix, use_mmap);
      // Sequences may share tokens; a file in which all share a long one is valid, but slow to count. Without a mapping
      // every read opens the .bin; only the constructor's checks differ then.
      if (dataset.num_tokens() > 1 << 20 || !use_mmap) return;
      const train::DatasetStatistics seen = train::measure(dataset, 5);
      fuzz::require(seen.sequences == dataset.num_sequences(), "all sequences are counted");
    });
  }
  return 0;
}
