// A checkpoint of torch.distributed.checkpoint to be written (dcp_reader.h reads it): which box of which tensor is
// which archive of which .distcp file, and the .metadata that says so.
//
// Sizes are known beforehand, so places are given as entries are added; archive_sink.h fills the files. Sources: as
// dcp_reader.h.
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
  // The file "__{rank}_0.distcp"; the same one for the same rank.
  int32_t file_of_rank(int rank);

  // path: of all entries or, in a checkpoint that does not say (Megatron's), of none. Returns the tensor's index.
  size_t add_tensor(std::string key, SafetensorsDType dtype, core::Dims shape, DcpPath path = {});
  // A box of a tensor; returns the place of its first element. contents: its bytes, if no target fills it.
  ArchivePlace add_chunk(size_t tensor, core::Dims offset, core::Dims extent, int32_t file, std::string contents = {});
  // pickle: of the object. storages: those that it refers to, in order.
  void add_object(std::string key, std::string pickle, int32_t file, DcpPath path = {},
                  std::vector<std::string> storages = {});

  // .metadata, as Python's pickle reads it where PyTorch 2 is.
  std::string metadata() const;
  // For the sink. Nothing can be added then.
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
  // Behind what the file holds.
  Payload add_archive(int32_t file, Archive archive);

  std::vector<Tensor> tensors_;
  std::vector<Object> objects_;
  bool has_paths_ = false;
  std::map<int, int32_t> file_of_rank_;
  std::vector<std::string> names_;  // of the files
  std::vector<int64_t> ends_;       // of the files
  std::vector<ArchiveFile> files_;
};

}  // namespace ms::convert
