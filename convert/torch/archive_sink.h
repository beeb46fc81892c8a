// Writes a folder of torch.save files, or of files that contain many such archives, as a ckpt::Sink. Megatron and
// PyTorch DCP checkpoints are such folders.
//
// The content of each archive is planned before writing (torch_writer.h), and each target has a place in one of its
// storages. Files are written through placed_result.h: the folder appears whole or not at all, few files are open at a
// time, and an archive is held in memory only from its first write to its last.
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
  int64_t at = 0;  // offset in the file
  std::vector<int64_t> storage_bytes;
  std::function<std::string()> pickle;                   // called when the archive is first written
  std::vector<std::pair<size_t, std::string>> contents;  // of storages that no target fills
};

struct ArchiveFile {
  std::string path;               // relative to the folder: "mp_rank_00/model_optim_rng.pt"
  std::vector<Archive> archives;  // disjoint, in order of offset
};

struct ArchivePlace {
  int32_t file = 0;
  int32_t archive = 0;
  int32_t storage = 0;
  int64_t offset_bytes = 0;
  int64_t transposed_columns = 0;  // columns of the stored matrix, which holds the target transposed; 0: not transposed
};

struct ArchiveSinkOptions {
  std::filesystem::path root;  // --save-dir; created if absent
  std::string folder;  // folder of the files, relative to the root: "iter_0000100"; empty: the root itself, which must
                       // not exist
  std::vector<ArchiveFile> files;
  std::vector<ArchivePlace> places;  // one per target; storage bytes that no target fills are zero
  // Small files in the folder, by name, written in this order after all archives.
  std::vector<std::pair<std::string, std::function<std::string()>>> texts;
  // Small files in the root that refer to the folder, by name; they appear after it, in this order.
  std::vector<std::pair<std::string, std::string>> pointers;
  WriteOptions writing;
};

// begin() throws kInvalidArgument if the folder exists, and whatever PlacedResult::begin throws. commit() returns the
// folder.
std::unique_ptr<ckpt::Sink> make_archive_sink(ArchiveSinkOptions options);

}  // namespace ms::convert
