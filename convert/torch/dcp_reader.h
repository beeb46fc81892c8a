// Reads a checkpoint of torch.distributed.checkpoint (DCP), the format of Megatron's torch_dist too: a folder with
// .metadata, a pickle that lists which box of which tensor is stored where, and *.distcp files of payloads, each of
// which is the torch.save archive of one tensor or object.
//
// Everything is checked before use: boxes lie inside their tensor and have as many elements as it (ckpt::check_coverage
// checks that they tile it), each box has one payload, and payloads lie inside their files without overlap. Nothing is
// executed (pickle.h).
// Sources: PyTorch's torch/distributed/checkpoint/{metadata,filesystem}.py (in 1.13 under
// torch/distributed/_shard/checkpoint), Megatron's megatron/core/dist_checkpointing/strategies/torch.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "convert/torch/torch_file.h"
#include "core/sharded_tensor.h"

namespace ms::convert {

// Path of an entry in the nested dictionaries and lists that were saved: {"optim", "param_groups", 0, "lr"}.
using DcpPath = std::vector<std::variant<std::string, int64_t>>;

// Returns true if `folder` contains a file .metadata.
bool is_dcp(const std::string& folder);

class DcpReader {
 public:
  struct Payload {
    uint32_t file = 0;
    int64_t at = 0, bytes = 0;
  };
  struct Chunk {
    core::Dims offset, extent;  // within the tensor
    Payload payload;
  };
  struct Tensor {
    SafetensorsDType dtype = SafetensorsDType::kF32;
    core::Dims shape;
    std::vector<Chunk> chunks;
  };

  // Throws kNotFound, kIo, kCorruptData; kUnsupported for transformed (compressed) payloads and for element types that
  // SafetensorsDType lacks.
  explicit DcpReader(const std::string& folder);
  ~DcpReader();

  const std::string& folder() const { return folder_; }
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  // Entries that are not tensors: numbers, lists, RNG states.
  const std::map<std::string, Payload, std::less<>>& objects() const { return objects_; }

  // Has no entries if the checkpoint does not store paths.
  const std::map<std::string, DcpPath, std::less<>>& paths() const { return paths_; }

  // Returns, for example, "DIR/__0_0.distcp, bytes 0 to 1261".
  std::string describe(const Payload& payload) const;

  // Reads the box [offset, offset + extent) of a chunk (in elements, relative to the chunk), dense and row-major.
  // Thread-safe. The first use of a payload compares all of it with its CRC, if it has one. Throws kIo; kCorruptData,
  // also if a payload is not the tensor that .metadata describes.
  void read(const Tensor& tensor, const Chunk& chunk, const core::Dims& offset, const core::Dims& extent,
            std::byte* out) const;
  // As read(), but without the CRC check: for a look at a few elements that read() will check later.
  void peek(const Tensor& tensor, const Chunk& chunk, const core::Dims& offset, const core::Dims& extent,
            std::byte* out) const;
  // See ckpt::Source.
  void begin_one_pass() const;
  void end_one_pass(bool all) const;
  // Opens the torch.save archive of an object. Throws as TorchFile.
  TorchFile open_object(const Payload& payload) const;
  // Reads an object's archive without interpreting it: the pickle and the storages "0", "1", .. that it refers to, each
  // compared with its CRC. Throws kUnsupported for an archive with other records, kCorruptData also if the total
  // exceeds max_bytes.
  struct RawObject {
    std::string pickle;
    std::vector<std::string> storages;
  };
  RawObject read_object(const Payload& payload, int64_t max_bytes) const;

 private:
  class Metadata;
  struct Opened;
  ArchiveRange range_of(const Payload& payload) const;
  void read_box(const Tensor& tensor, const Chunk& chunk, const core::Dims& offset, const core::Dims& extent,
                std::byte* out, bool check) const;
  std::shared_ptr<const Opened> open(const Tensor& tensor, const Chunk& chunk) const;

  std::string folder_;
  std::vector<std::string> files_;  // paths
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, Payload, std::less<>> objects_;
  std::map<std::string, DcpPath, std::less<>> paths_;
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace ms::convert
