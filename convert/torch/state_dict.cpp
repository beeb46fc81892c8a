#include "convert/torch/state_dict.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "convert/detail/printable.h"
#include "convert/torch/torch_file.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

class StateDict final : public TensorFile {
 public:
  explicit StateDict(const std::string& path) : file_(path) {
    const PickleValue root = file_.root();
    if (!root.is(PickleKind::kDict) && !root.is_call_of("collections", "OrderedDict")) {
      throw Error(ErrorCode::kUnsupported, cat(path, ": not a state_dict, but something else that torch.save wrote"));
    }
    uint64_t at = 0;
    for (const auto& [key, value] : root.pairs()) {
      if (!key.is(PickleKind::kString)) {
        throw Error(ErrorCode::kUnsupported, cat(path, ": not a state_dict: a key that is no string"));
      }
      auto tensor = file_.tensor(value);
      if (!tensor) {
        throw Error(ErrorCode::kUnsupported, cat(path, ": not a state_dict: ", printable(key.text()), " is no tensor"));
      }
      const uint64_t bytes = tensor->size_bytes();
      entries_.push_back({std::string(key.text()), std::move(*tensor), at});
      if (__builtin_add_overflow(at, bytes, &at)) {
        throw Error(ErrorCode::kCorruptData, cat(path, ": tensors of more bytes than can be counted"));
      }
    }
    by_name_.resize(entries_.size());
    std::iota(by_name_.begin(), by_name_.end(), size_t{0});
    std::sort(by_name_.begin(), by_name_.end(),
              [&](size_t a, size_t b) { return entries_[a].name < entries_[b].name; });
    const auto same = std::adjacent_find(by_name_.begin(), by_name_.end(),
                                         [&](size_t a, size_t b) { return entries_[a].name == entries_[b].name; });
    if (same != by_name_.end()) {
      throw Error(ErrorCode::kCorruptData, cat(path, ": two tensors are called ", printable(entries_[*same].name)));
    }
  }

  const std::string& path() const override { return file_.where(); }
  size_t size() const override { return entries_.size(); }
  Tensor operator[](size_t index) const override {
    const Entry& entry = entries_[index];
    return {entry.name, entry.tensor.dtype, entry.tensor.shape, entry.at, entry.at + entry.tensor.size_bytes()};
  }
  std::optional<size_t> find(std::string_view name) const override {
    const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                        [&](size_t i, std::string_view wanted) { return entries_[i].name < wanted; });
    return found != by_name_.end() && entries_[*found].name == name ? std::optional(*found) : std::nullopt;
  }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    if (out.empty()) return;
    const auto after = std::upper_bound(entries_.begin(), entries_.end(), offset,
                                        [](uint64_t at, const Entry& entry) { return at < entry.at; });
    MS_CHECK(after != entries_.begin(), "byte ", offset, " of no tensor");
    const Entry& entry = *std::prev(after);
    file_.read(entry.tensor, (offset - entry.at) / (bits_of(entry.tensor.dtype) / 8), out);
  }

 private:
  struct Entry {
    std::string name;
    TorchTensor tensor;
    uint64_t at = 0;  // of its bytes among all
  };
  TorchFile file_;
  std::vector<Entry> entries_;   // by `at`
  std::vector<size_t> by_name_;  // indices into entries_
};

}  // namespace

std::unique_ptr<TensorFile> open_state_dict(const std::string& path) { return std::make_unique<StateDict>(path); }

}  // namespace ms::convert
