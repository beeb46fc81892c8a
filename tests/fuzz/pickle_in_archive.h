// For readers of folders of torch.save files: one file of a real folder gets another pickle and keeps its storages.
// Bytes flipped in the file itself would only fail its checksums.
//
// An input is the number of the place (a byte) and the pickle.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/source.h"
#include "convert/torch/torch_writer.h"
#include "convert/torch/zip_reader.h"
#include "tests/fuzz/reader.h"

namespace ms::fuzz {

class PickleInArchive {
 public:
  // genuine: a folder of tests/data, which is copied; file: a path in it.
  PickleInArchive(const std::string& genuine, const std::string& file) {
    static int copies = 0;
    root_ = (folder().path() / core::cat("place", copies++)).string();
    std::filesystem::copy(core::cat(MS_TEST_DATA, "/", genuine), root_, std::filesystem::copy_options::recursive);
    file_ = core::cat(root_, "/", file);
    const convert::ZipReader archive(convert::ArchiveRange::whole(file_));
    for (int storage = 0;; ++storage) {
      const std::string suffix = core::cat("/data/", storage);
      size_t entry = 0;
      while (entry < archive.entries().size() && !archive.entries()[entry].name.ends_with(suffix)) ++entry;
      if (entry == archive.entries().size()) break;
      storages_.push_back(archive.read_all(entry, 1 << 20));
    }
  }
  const std::string& root() const { return root_; }
  void set(std::string_view pickle) const {
    test::write_file(file_, convert::make_torch_archive(std::string(pickle), storages_));
  }

 private:
  std::string root_, file_;
  std::vector<std::string> storages_;
};

// Reads the first and the last element of every tensor.
inline void read_ends(ckpt::Source& source) {
  for (int32_t shard = 0; shard < static_cast<int32_t>(source.shards().size()); ++shard) {
    const core::Dims shape = source.shards()[shard].local_shape;
    if (core::num_elements(shape) == 0) continue;
    core::Dims last = shape;
    for (int64_t& index : last) --index;
    std::byte out[16];
    read_or_refuse([&] { source.read(shard, core::Dims(shape.size(), 0), core::Dims(shape.size(), 1), out); });
    read_or_refuse([&] { source.read(shard, last, core::Dims(shape.size(), 1), out); });
  }
}

// Opens the folder with `open`, and reads the ends of its tensors.
template <class Open>
void read_with_pickle(const std::vector<PickleInArchive>& places, const uint8_t* data, size_t size, const Open& open) {
  if (size == 0 || data[0] >= places.size()) return;
  const PickleInArchive& place = places[data[0]];
  place.set(text_of(data + 1, size - 1));
  read_or_refuse([&] {
    std::vector<std::string> decisions;
    read_ends(*open(place.root(), decisions));
  });
}

}  // namespace ms::fuzz
