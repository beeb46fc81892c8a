// A checkpoint of torch.distributed.checkpoint (DCP), which is also what Megatron's torch_dist is: a folder with
// .metadata, a pickle that says which box of which tensor lies where, and *.distcp files of payloads, each what
// torch.save makes of one tensor or object.
//
// Believes nothing: boxes lie in their tensor and have as many elements as it (that they tile it, ckpt::check_coverage
// tells), each has one payload, payloads lie inside their files and apart. Nothing is executed (pickle.h). Sources:
// PyTorch's torch/distributed/checkpoint/{metadata,filesystem}.py (1.13 has them under
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

// Where an entry stands in the nested dictionaries and lists that were saved: {"optim", "param_groups", 0, "lr"}.
using DcpPath = std::vector<std::variant<std::string, int64_t>>;

// True if `folder` holds a file .metadata.
bool is_dcp(const std::string& folder);

class DcpReader {
 public:
  struct Payload {
    uint32_t file = 0;
    int64_t at = 0, bytes = 0;
  };
  struct Chunk {
    core::Dims offset, extent;  // of the tensor
    Payload payload;
  };
  struct Tensor {
    SafetensorsDType dtype = SafetensorsDType::kF32;
    core::Dims shape;
    std::vector<Chunk> chunks;
  };

  // Throws kNotFound, kIo, kCorruptData; kUnsupported for payloads that are transformed (compressed), and element types
  // without a name here.
  explicit DcpReader(const std::string& folder);
  ~DcpReader();

  const std::string& folder() const { return folder_; }
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  // What is no tensor: a number, a list, rng states.
  const std::map<std::string, Payload, std::less<>>& objects() const { return objects_; }

  // Entries of a checkpoint that does not say where they stood are not in it.
  const std::map<std::string, DcpPath, std::less<>>& paths() const { return paths_; }

  // "DIR/__0_0.distcp, bytes 0 to 1261".
  std::string describe(const Payload& payload) const;

  // The box [offset, offset + extent) of a chunk (elements, from the chunk's own beginning), dense and row-major.
  // Thread-safe. The first use of a payload checks all of it against its CRC, if it has one. Throws kIo; kCorruptData,
  // also for a payload that is not the tensor that .metadata says.
  void read(const Tensor& tensor, const Chunk& chunk, const core::Dims& offset, const core::Dims& extent,
            std::byte* out) const;
  // The same without the CRC, for a look at few elements that read() will check.
  void peek(const Tensor& tensor, const Chunk& chunk, const core::Dims& offset, const core::Dims& extent,
            std::byte* out) const;
  // As ckpt::Source.
  void begin_one_pass() const;
  void end_one_pass(bool all) const;
  // What torch.save made of an object. Throws as TorchFile.
  TorchFile open_object(const Payload& payload) const;
  // Its archive as it is: the pickle and the storages "0", "1", .. that it refers to, each with its CRC checked. Throws
  // kUnsupported for an archive of other records, kCorruptData also if all is larger than max_bytes.
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
  std::vector<std::string> files_;  // their paths
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, Payload, std::less<>> objects_;
  std::map<std::string, DcpPath, std::less<>> paths_;
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace ms::convert
