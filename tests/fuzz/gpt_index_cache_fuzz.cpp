// train/data/gpt_dataset.h: one file of a cached index, chosen by the first byte, is replaced by the other bytes.
// Whatever it contains, the loaded index equals the one that would be built.
#include <algorithm>
#include <filesystem>

#include "tests/fuzz/reader.h"
#include "train/data/gpt_dataset.h"

namespace {

using namespace ms;
using train::GptIndices;

const train::GptIndexRequest kRequest{0, 20, 30, 6, 1, "train"};

const train::IndexedDataset& small_set() {
  static const train::IndexedDataset dataset = [] {
    const std::string prefix = fuzz::folder() / "set";
    train::IndexedDatasetBuilder builder(prefix, train::TokenType::kUint16);
    for (int d = 0; d < 20; ++d) builder.add_document(std::vector<int32_t>(static_cast<size_t>(d % 7 + 1), d));
    builder.finalize();
    return train::IndexedDataset(prefix);
  }();
  return dataset;
}

std::vector<std::string> cache_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

bool same(const GptIndices& a, const GptIndices& b) {
  return std::ranges::equal(a.document_index(), b.document_index()) &&
         std::ranges::equal(a.sample_index(), b.sample_index()) &&
         std::ranges::equal(a.shuffle_index(), b.shuffle_index());
}

std::string damage(std::string file, int what, size_t at, const std::string& bytes) {
  at = std::min(at, file.size());
  if (what == 0) return file.substr(0, at);
  if (what == 1) return file.replace(at, std::min(bytes.size(), file.size() - at), bytes);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string cache = fuzz::folder() / "cache";
  static const GptIndices built = GptIndices::build(small_set().sequence_lengths(0, 20), kRequest);
  static const std::vector<std::string> files = [] {
    GptIndices::build_or_load(small_set(), kRequest, cache);
    return cache_files(cache);
  }();
  fuzz::require(files.size() == 4, "a cached index has four files");
  if (size < 4) return 0;
  const std::string& file = files[data[0] % files.size()];
  const auto at = static_cast<size_t>(data[2] + 256 * data[3]);
  test::write_file(file,
                   damage(test::read_file(file), data[1] % 3, at, std::string(fuzz::text_of(data, size).substr(4))));
  fuzz::read_or_refuse([&] {
    fuzz::require(same(GptIndices::build_or_load(small_set(), kRequest, cache), built), "a damaged cache is not used");
    fuzz::require(cache_files(cache) == files, "and is put right");
  });
  return 0;
}
