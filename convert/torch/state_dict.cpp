#include "convert/torch/state_dict.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "convert/detail/printable.h"
#include "convert/torch/torch_file.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

bool is_dictionary(PickleValue value) {
  return value.is(PickleKind::kDict) || value.is_call_of("collections", "OrderedDict");
}

// Keys under which training programs nest the state_dict, next to their own state.
constexpr std::string_view kWrappers[] = {"state_dict", "model_state_dict", "model", "module"};
constexpr int kMaxNesting = 16;

class StateDict final : public TensorFile {
 public:
  StateDict(const std::string& path, OtherEntries others) : file_(path), others_(others) {
    const PickleValue root = file_.root();
    if (!is_dictionary(root)) {
      throw Error(ErrorCode::kUnsupported, cat(path, ": a torch.save file, but not a state_dict"));
    }
    add(unwrapped(root), "", 0);
    if (skipped_ > 0) {
      if (entries_.empty())
        throw Error(ErrorCode::kUnsupported, cat(path, ": not a state_dict: it contains no tensors"));
      core::log_info("convert.torch", cat(path, ": ", skipped_, " entries that are not tensors are left out, such as ",
                                          printable(example_)));
    }
    by_name_.resize(entries_.size());
    std::iota(by_name_.begin(), by_name_.end(), size_t{0});
    std::sort(by_name_.begin(), by_name_.end(),
              [&](size_t a, size_t b) { return entries_[a].name < entries_[b].name; });
    const auto same = std::adjacent_find(by_name_.begin(), by_name_.end(),
                                         [&](size_t a, size_t b) { return entries_[a].name == entries_[b].name; });
    if (same != by_name_.end()) {
      throw Error(ErrorCode::kCorruptData, cat(path, ": two tensors are named ", printable(entries_[*same].name)));
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
    MS_CHECK(after != entries_.begin(), "byte ", offset, " is in no tensor");
    const Entry& entry = *std::prev(after);
    file_.read(entry.tensor, (offset - entry.at) / (bits_of(entry.tensor.dtype) / 8), out);
  }

 private:
  struct Entry {
    std::string name;
    TorchTensor tensor;
    uint64_t at = 0;  // byte offset in the concatenation of all tensors
  };

  // Returns the dictionary of tensors: the one under a key of kWrappers, unless the outer dictionary has tensors
  // itself.
  PickleValue unwrapped(PickleValue root) const {
    std::optional<PickleValue> inner;
    std::string_view name;
    const auto pairs = root.pairs();
    for (const auto& [key, value] : pairs) {
      if (file_.tensor(value)) return root;
    }
    for (const std::string_view wrapper : kWrappers) {
      for (const auto& [key, value] : pairs) {
        if (inner || !key.is(PickleKind::kString) || key.text() != wrapper || !is_dictionary(value)) continue;
        inner = value;
        name = wrapper;
      }
    }
    if (!inner) return root;
    std::string others;
    for (const auto& [key, value] : pairs) {
      if (value.id() == inner->id() || !key.is(PickleKind::kString)) continue;
      others += cat(others.empty() ? "" : ", ", printable(key.text()));
      if (others.size() > 200) break;
    }
    core::log_info("convert.torch", cat(file_.where(), ": reading the tensors under ", printable(name),
                                        others.empty() ? "" : cat("; left out: ", others)));
    return *inner;
  }

  void skip(const std::string& name) {
    if (others_ == OtherEntries::kRefused) {
      throw Error(ErrorCode::kUnsupported,
                  cat(file_.where(), ": not a state_dict: ", printable(name), " is not a tensor"));
    }
    if (skipped_++ == 0) example_ = name;
  }

  void add(PickleValue dictionary, const std::string& prefix, int depth) {
    // A dictionary that occurs twice, or contains itself, would be expanded without end.
    if (depth > kMaxNesting || !seen_.insert(dictionary.id()).second) return skip(prefix);
    for (const auto& [key, value] : dictionary.pairs()) {
      if (!key.is(PickleKind::kString)) {
        if (others_ == OtherEntries::kLeftOut) {
          skip(cat(prefix, "a key that is not a string"));
          continue;
        }
        throw Error(ErrorCode::kUnsupported, cat(file_.where(), ": not a state_dict: a key that is not a string"));
      }
      std::string name = cat(prefix, key.text());
      auto tensor = file_.tensor(value);
      if (!tensor) {
        if (others_ == OtherEntries::kLeftOut && is_dictionary(value)) {
          add(value, name + ".", depth + 1);
        } else {
          skip(name);
        }
        continue;
      }
      const uint64_t bytes = tensor->size_bytes();
      entries_.push_back({std::move(name), std::move(*tensor), end_});
      if (__builtin_add_overflow(end_, bytes, &end_)) {
        throw Error(ErrorCode::kCorruptData, cat(file_.where(), ": its tensors have too many bytes to count"));
      }
    }
  }

  TorchFile file_;
  OtherEntries others_;
  uint64_t end_ = 0;  // bytes of all tensors
  size_t skipped_ = 0;
  std::string example_;          // a skipped entry
  std::set<uint32_t> seen_;      // dictionaries
  std::vector<Entry> entries_;   // ordered by `at`
  std::vector<size_t> by_name_;  // indices into entries_, ordered by name
};

}  // namespace

std::unique_ptr<TensorFile> open_state_dict(const std::string& path) {
  return std::make_unique<StateDict>(path, OtherEntries::kRefused);
}

std::unique_ptr<TensorFile> open_state_dict(const std::string& path, OtherEntries others) {
  return std::make_unique<StateDict>(path, others);
}

}  // namespace ms::convert
