// Tensors whose elements lie in runs of several tensors of several files of torch.save, as one TensorFile: what ranks
// have split up is put together.
//
// Files are opened again when they are read, a few at a time: a checkpoint may have thousands.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convert/tensor_file.h"
#include "convert/torch/torch_file.h"

namespace ms::convert {

class TorchPieces final : public TensorFile {
 public:
  // Elements [first, first + count), in row-major order, of what add_view returned.
  struct Run {
    uint32_t view = 0;
    uint64_t first = 0, count = 0;
  };

  // where: path(), begins messages.
  explicit TorchPieces(std::string where);
  ~TorchPieces() override;

  uint32_t add_file(std::string path);
  // A tensor of that file, as TorchFile::tensor() told it.
  uint32_t add_view(uint32_t file, TorchTensor tensor);
  uint64_t elements_of(uint32_t view) const;
  const std::string& path_of(uint32_t view) const;
  // The tensor that the runs make, in this order; its index. Throws kCorruptData if the runs are of several element
  // types, reach behind their views, or hold more or fewer elements than the shape, and for a name that is there.
  size_t add_tensor(std::string name, std::vector<uint64_t> shape, std::vector<Run> runs);

  const std::string& path() const override { return where_; }
  size_t size() const override { return entries_.size(); }
  Tensor operator[](size_t index) const override;
  std::optional<size_t> find(std::string_view name) const override;
  // The first use of a storage checks all of it against its CRC. Throws also kCorruptData if a file is another than it
  // was.
  void read(uint64_t offset, std::span<std::byte> out) const override;
  void begin_one_pass() override;
  void end_one_pass(bool all) override;
  // Elements of one tensor from `first` on, without the CRC, for a look at few that read() will check.
  void peek(size_t index, uint64_t first, std::span<std::byte> out) const;

 private:
  struct View {
    uint32_t file = 0;
    uint64_t storage_bytes = 0;  // that it reaches
    TorchTensor tensor;
  };
  struct Entry {
    std::string name;
    SafetensorsDType dtype = SafetensorsDType::kF32;
    std::vector<uint64_t> shape;
    std::vector<Run> runs;
    std::vector<uint64_t> ends;  // of the runs, in elements of the tensor
    uint64_t at = 0, bytes = 0;  // among the bytes of all
  };
  void read_runs(const Entry& entry, uint64_t element, std::span<std::byte> out, bool check) const;
  void read_view(const View& view, uint64_t first, std::span<std::byte> out, bool check) const;
  std::shared_ptr<const TorchFile> open(uint32_t file) const;

  std::string where_;
  std::vector<std::string> paths_;
  std::vector<View> views_;
  std::vector<Entry> entries_;  // by `at`
  std::map<std::string, size_t, std::less<>> by_name_;
  uint64_t end_ = 0;
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace ms::convert
