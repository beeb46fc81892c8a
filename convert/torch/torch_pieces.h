// Presents tensors whose elements are spread over several torch.save files as one TensorFile: merges what ranks have
// split up.
//
// Files are reopened when they are read, and few are open at a time: a checkpoint may have thousands.
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
  // Elements [first, first + count), in row-major order, of a view returned by add_view.
  struct Run {
    uint32_t view = 0;
    uint64_t first = 0, count = 0;
  };

  // where: returned by path(), and prepended to messages.
  explicit TorchPieces(std::string where);
  ~TorchPieces() override;

  uint32_t add_file(std::string path);
  // Adds a tensor of that file, as returned by TorchFile::tensor().
  uint32_t add_view(uint32_t file, TorchTensor tensor);
  uint64_t elements_of(uint32_t view) const;
  const std::string& path_of(uint32_t view) const;
  // Adds the tensor that consists of the runs, in this order; returns its index. Throws kCorruptData if the runs differ
  // in element type, reach past the end of their views, or do not hold as many elements as the shape, and if the name
  // exists.
  size_t add_tensor(std::string name, std::vector<uint64_t> shape, std::vector<Run> runs);

  const std::string& path() const override { return where_; }
  size_t size() const override { return entries_.size(); }
  Tensor operator[](size_t index) const override;
  std::optional<size_t> find(std::string_view name) const override;
  // The first use of a storage compares all of it with its CRC. Throws kCorruptData also if a file has changed.
  void read(uint64_t offset, std::span<std::byte> out) const override;
  void begin_one_pass() override;
  void end_one_pass(bool all) override;
  // Reads elements of one tensor from `first` on, without the CRC check: for a look at a few that read() will check
  // later.
  void peek(size_t index, uint64_t first, std::span<std::byte> out) const;

 private:
  struct View {
    uint32_t file = 0;
    uint64_t storage_bytes = 0;  // least size of the storage that contains the view
    TorchTensor tensor;
  };
  struct Entry {
    std::string name;
    SafetensorsDType dtype = SafetensorsDType::kF32;
    std::vector<uint64_t> shape;
    std::vector<Run> runs;
    std::vector<uint64_t> ends;  // end of each run, in elements of the tensor
    uint64_t at = 0, bytes = 0;  // byte range in the concatenation of all tensors
  };
  void read_runs(const Entry& entry, uint64_t element, std::span<std::byte> out, bool check) const;
  void read_view(const View& view, uint64_t first, std::span<std::byte> out, bool check) const;
  std::shared_ptr<const TorchFile> open(uint32_t file) const;

  std::string where_;
  std::vector<std::string> paths_;
  std::vector<View> views_;
  std::vector<Entry> entries_;  // ordered by `at`
  std::map<std::string, size_t, std::less<>> by_name_;
  uint64_t end_ = 0;
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace ms::convert
