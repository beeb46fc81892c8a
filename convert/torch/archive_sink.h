// A folder of files of torch.save, or of files of many such archives, as a ckpt::Sink: what checkpoints of Megatron and
// of PyTorch DCP are made of.
//
// What is in each archive is planned beforehand (torch_writer.h); targets go to places in its storages. Files are
// written through placed_result.h: the folder appears whole or not at all, and few files are open at a time; archives
// come and go within that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/sink.h"
#include "convert/placed_result.h"

namespace ms::convert {

struct Archive {
  int64_t at = 0;  // in the file
  std::vector<int64_t> storage_bytes;
  std::function<std::string()> pickle;                   // asked for when the archive is begun
  std::vector<std::pair<size_t, std::string>> contents;  // of storages that no target fills
};

struct ArchiveFile {
  std::string path;               // in the folder: "mp_rank_00/model_optim_rng.pt"
  std::vector<Archive> archives;  // apart, in order of place
};

struct ArchivePlace {
  int32_t file = 0;
  int32_t archive = 0;
  int32_t storage = 0;
  int64_t offset_bytes = 0;
  int64_t transposed_columns = 0;  // of the stored matrix, whose columns are the target's rows; 0: not transposed
};

struct ArchiveSinkOptions {
  std::filesystem::path root;  // --save-dir: made if absent
  std::string folder;          // of the files, in the root: "iter_0000100"; empty: the root itself, which is to be made
  std::vector<ArchiveFile> files;
  std::vector<ArchivePlace> places;  // of the targets; what no target fills of a storage is zeros
  // Small files of the folder, by name, written in this order when all archives are there.
  std::vector<std::pair<std::string, std::function<std::string()>>> texts;
  // Small files of the root that lead to the folder, by name: they appear after it, in this order.
  std::vector<std::pair<std::string, std::string>> pointers;
  WriteOptions writing;
};

// begin() throws kInvalidArgument if the folder exists, and as PlacedResult::begin. commit() returns the folder.
std::unique_ptr<ckpt::Sink> make_archive_sink(ArchiveSinkOptions options);

}  // namespace ms::convert
