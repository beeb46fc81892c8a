// Plans a torch.distributed.checkpoint (DCP) to be written: assigns each box of each tensor to an archive in a .distcp
// file, and makes the .metadata file that lists them. dcp_reader.h reads such checkpoints.
//
// Sizes are known in advance, so an entry gets its place when it is added; archive_sink.h fills the files.
// Sources: see dcp_reader.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "convert/safetensors.h"
#include "convert/torch/archive_sink.h"
#include "convert/torch/dcp_reader.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

class DcpLayout {
 public:
  // Returns the index of file "__{rank}_0.distcp", which is created on the first call for a rank.
  int32_t file_of_rank(int rank);

  // path: given for all entries, or for none (Megatron's checkpoints do not store paths). Returns the tensor's index.
  size_t add_tensor(std::string key, SafetensorsDType dtype, core::Dims shape, DcpPath path = {});
  // Adds a box of a tensor and returns the place of its first element. contents: its bytes, if no target fills it.
  ArchivePlace add_chunk(size_t tensor, core::Dims offset, core::Dims extent, int32_t file, std::string contents = {});
  // pickle: the pickled object. storages: the storages that it refers to, in order.
  void add_object(std::string key, std::string pickle, int32_t file, DcpPath path = {},
                  std::vector<std::string> storages = {});

  // Returns the content of .metadata, which any Python with PyTorch 2 can unpickle.
  std::string metadata() const;
  // Moves the files out, for the sink. Nothing can be added afterwards.
  std::vector<ArchiveFile> take_files() { return std::move(files_); }

 private:
  struct Payload {
    int32_t file = 0;
    int64_t at = 0, bytes = 0;
  };
  struct Chunk {
    core::Dims offset, extent;
    Payload payload;
  };
  struct Tensor {
    std::string key;
    SafetensorsDType dtype = SafetensorsDType::kF32;
    core::Dims shape;
    DcpPath path;
    std::vector<Chunk> chunks;
  };
  struct Object {
    std::string key;
    DcpPath path;
    Payload payload;
  };
  // Appends an archive to the file.
  Payload add_archive(int32_t file, Archive archive);

  std::vector<Tensor> tensors_;
  std::vector<Object> objects_;
  bool has_paths_ = false;
  std::map<int, int32_t> file_of_rank_;
  std::vector<std::string> names_;  // one per file
  std::vector<int64_t> ends_;       // one per file
  std::vector<ArchiveFile> files_;
};

}  // namespace ms::convert
