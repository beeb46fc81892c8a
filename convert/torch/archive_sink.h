// A folder of files of torch.save, or of files of many such archives, as a ckpt::Sink: what checkpoints of Megatron and
// of PyTorch DCP are made of.
//
// What is in each archive is planned beforehand (torch_writer.h); targets go to places in its storages. The folder is
// filled under a temporary name and appears whole or not at all; files are made with their first write and durable with
// their last, so that few are open at a time, and archives come and go within that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/sink.h"
#include "core/io/bulk_writer.h"

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
  std::filesystem::path folder;  // to be made; its parent is made if absent
  std::vector<ArchiveFile> files;
  std::vector<ArchivePlace> places;  // of the targets; what no target fills of a storage is zeros
  // Small files, by name, written in this order when all archives are there.
  std::vector<std::pair<std::string, std::function<std::string()>>> texts;
  std::optional<core::WritePath> write_path;  // none: the fastest that works there
  std::function<void()> committed;            // when the folder is there for good; may be empty
};

// begin() throws kInvalidArgument if the folder exists, kIo if there is not enough space, kUnsupported if
// the write path does not work there. commit() returns the folder.
std::unique_ptr<ckpt::Sink> make_archive_sink(ArchiveSinkOptions options);

}  // namespace ms::convert
