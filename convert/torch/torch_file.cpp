#include "convert/torch/torch_file.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "convert/detail/printable.h"
#include "convert/torch/torch_types.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

constexpr int64_t kMaxPickleBytes = int64_t{512} << 20;

uint64_t checked_product(uint64_t a, uint64_t b, const std::string& where) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw Error(ErrorCode::kCorruptData, cat(where, ": a tensor with too many elements to count"));
  }
  return product;
}

}  // namespace

struct TorchFile::Types {
  explicit Types(size_t records) : of(records) {}
  std::mutex mutex;
  std::vector<std::optional<SafetensorsDType>> of;
};

uint64_t TorchTensor::elements() const {
  uint64_t count = 1;
  for (const uint64_t length : shape) count *= length;
  return count;
}

bool TorchTensor::is_dense() const {
  uint64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0; step *= shape[axis]) {
    if (shape[axis] > 1 && stride[axis] != step) return false;
  }
  return true;
}

TorchFile::TorchFile(ArchiveRange range, std::shared_ptr<RecordChecks> known)
    : TorchFile(range, is_legacy_torch_file(range) ? read_legacy_torch_file(range) : LegacyTorchFile(),
                std::move(known)) {}

TorchFile::TorchFile(ArchiveRange range, LegacyTorchFile legacy, std::shared_ptr<RecordChecks> known)
    : archive_(legacy.pickle ? ZipReader(std::move(range), std::move(legacy.records)) : ZipReader(std::move(range))),
      types_(std::make_unique<Types>(archive_.entries().size())),
      checks_(std::move(known)) {
  if (checks_ == nullptr) checks_ = std::make_shared<RecordChecks>(archive_.entries().size());
  if (checks_->records() != archive_.entries().size()) {
    throw Error(ErrorCode::kCorruptData, cat(where(), ": changed while it was being read"));
  }
  if (legacy.pickle) {
    prefix_ = "archive/";
    pickle_ = std::move(legacy.pickle);
    return;
  }
  if (archive_.entries().empty()) throw Error(ErrorCode::kCorruptData, cat(where(), ": an archive without records"));
  const std::string& first = archive_.entries()[0].name;
  prefix_ = first.substr(0, first.find('/') + 1);
  for (const ZipReader::Entry& entry : archive_.entries()) {
    if (prefix_.empty() || !entry.name.starts_with(prefix_)) {
      throw Error(ErrorCode::kCorruptData, cat(where(), ": the record ", printable(entry.name), " is not in ",
                                               printable(prefix_), " like the others: not a torch.save file"));
    }
  }
  if (const auto order = archive_.find(prefix_ + "byteorder"); order && archive_.read_all(*order, 16) != "little") {
    throw Error(ErrorCode::kUnsupported, cat(where(), ": written on a big-endian machine"));
  }
  const auto data = archive_.find(prefix_ + "data.pkl");
  if (!data)
    throw Error(ErrorCode::kCorruptData, cat(where(), ": no record ", prefix_, "data.pkl: not a torch.save file"));
  pickle_ = std::make_unique<Pickle>(archive_.read_all(*data, kMaxPickleBytes), cat(where(), ":data.pkl"));
}

TorchFile::~TorchFile() = default;

std::optional<TorchTensor> TorchFile::tensor(PickleValue value) const {
  constexpr const char* kUtils = "torch._utils";
  const std::string& where = pickle_->where();
  if (!value.is(PickleKind::kCall)) return std::nullopt;
  PickleValue callee = value.callee();
  std::vector<PickleValue> arguments = value.arguments();
  for (int depth = 0; depth < 3; ++depth) {
    if (callee.is_symbol("torch._tensor",
                         "_rebuild_from_type_v2")) {  // a tensor with attributes: (function, type, its arguments,
                                                      // attributes)
      if (arguments.size() < 4 || !arguments[2].is(PickleKind::kTuple)) {
        throw Error(ErrorCode::kCorruptData, cat(where, ": a tensor with attributes, but without arguments"));
      }
      callee = arguments[0];
      arguments = arguments[2].items();
    } else if (callee.is_symbol(kUtils, "_rebuild_parameter") ||
               callee.is_symbol(kUtils, "_rebuild_parameter_with_state")) {  // wraps a tensor
      if (arguments.empty()) throw Error(ErrorCode::kCorruptData, cat(where, ": a parameter without a tensor"));
      const PickleValue held = arguments[0];
      if (!held.is(PickleKind::kCall)) return std::nullopt;
      callee = held.callee();
      arguments = held.arguments();
    } else if (callee.is_symbol(kUtils, "_rebuild_tensor_v2")) {
      if (arguments.size() < 6) throw Error(ErrorCode::kCorruptData, cat(where, ": a tensor with too few arguments"));
      return view(arguments[0], arguments[1], arguments[2], arguments[3], std::nullopt);
    } else if (callee.is_symbol(kUtils, "_rebuild_tensor_v3")) {
      if (arguments.size() < 7) throw Error(ErrorCode::kCorruptData, cat(where, ": a tensor with too few arguments"));
      const auto dtype = parse_torch_dtype(arguments[6]);
      if (!dtype) throw Error(ErrorCode::kUnsupported, cat(where, ": a tensor with an unknown element type"));
      return view(arguments[0], arguments[1], arguments[2], arguments[3], dtype);
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// storage: the persistent id ('storage', type, key, location, numel).
TorchTensor TorchFile::view(PickleValue storage, PickleValue offset, PickleValue size, PickleValue stride,
                            std::optional<SafetensorsDType> dtype) const {
  const std::string& where = pickle_->where();
  const auto corrupt = [&](const std::string& what) { return Error(ErrorCode::kCorruptData, cat(where, ": ", what)); };
  if (!storage.is(PickleKind::kPersistent)) throw corrupt("a tensor without a storage");
  const PickleValue id = storage.items().at(0);
  const std::vector<PickleValue> parts = id.is(PickleKind::kTuple) ? id.items() : std::vector<PickleValue>();
  if (parts.size() < 5 || !parts[0].is(PickleKind::kString) || parts[0].text() != "storage" ||
      !parts[1].is(PickleKind::kSymbol)) {
    throw corrupt("a persistent id that is not a storage");
  }
  const bool untyped = parts[1].is_symbol("torch.storage", "UntypedStorage") || parts[1].text() == "UntypedStorage";
  TorchTensor tensor;
  if (untyped && dtype) {
    tensor.dtype = *dtype;
  } else {
    const auto type = parse_torch_storage(parts[1]);
    if (!type) throw Error(ErrorCode::kUnsupported, cat(where, ": a storage of type ", printable(parts[1].text())));
    tensor.dtype = *type;
  }
  const std::string name = cat(prefix_, "data/", parts[2].text());
  const auto record = archive_.find(name);
  if (!record) throw corrupt(cat("a tensor in storage ", printable(name), ", which does not exist"));
  tensor.record = *record;
  const auto bytes = static_cast<uint64_t>(archive_.entries()[*record].bytes);
  const uint64_t item = bits_of(tensor.dtype) / 8;
  const int64_t numel = parts[4].integer();
  if (numel < 0 || checked_product(static_cast<uint64_t>(numel), untyped && dtype ? 1 : item, where) != bytes) {
    throw corrupt(cat("the storage ", printable(name), " has ", bytes, " bytes, but should have ", numel,
                      untyped && dtype ? " bytes" : cat(" elements of ", item)));
  }
  {
    std::lock_guard lock(types_->mutex);
    auto& seen = types_->of[*record];
    if (seen && *seen != tensor.dtype)
      throw corrupt(cat("the storage ", printable(name), " is viewed with two element types"));
    seen = tensor.dtype;
  }
  tensor.shape = parse_torch_size(size, where);
  tensor.stride = parse_torch_size(stride, where);
  if (tensor.shape.size() != tensor.stride.size())
    throw corrupt("a tensor with different numbers of sizes and strides");
  if (offset.integer() < 0) throw corrupt("a tensor that begins before its storage");
  tensor.offset = static_cast<uint64_t>(offset.integer());
  uint64_t elements = 1, last = tensor.offset;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    elements = checked_product(elements, tensor.shape[axis], where);
    if (tensor.shape[axis] == 0) continue;
    if (__builtin_add_overflow(last, checked_product(tensor.shape[axis] - 1, tensor.stride[axis], where), &last)) {
      throw corrupt("a tensor that ends after its storage");
    }
  }
  checked_product(elements, item, where);
  if (elements > 0 && last >= bytes / item) {
    throw corrupt(cat("a tensor of shape ", tensor.shape, " reaches element ", last, " of the storage ",
                      printable(name), ", which has ", bytes / item));
  }
  return tensor;
}

void TorchFile::end_one_pass(bool all) const {
  checks_->set_one_pass(false);
  checks_->finish(archive_);
  for (size_t record = 0; all && record < types_->of.size(); ++record) {
    if (types_->of[record]) checks_->check(archive_, record);
  }
}

void TorchFile::read(const TorchTensor& tensor, uint64_t first, std::span<std::byte> out) const {
  if (out.empty()) return;
  const bool in_passing = tensor.is_dense() && checks_->takes(out.size());
  if (!in_passing) checks_->check(archive_, tensor.record);
  peek(tensor, first, out);
  if (!in_passing) return;
  const auto item = static_cast<int64_t>(bits_of(tensor.dtype) / 8);
  checks_->add(archive_, tensor.record, static_cast<int64_t>(tensor.offset + first) * item, out);
}

void TorchFile::peek(const TorchTensor& tensor, uint64_t first, std::span<std::byte> out) const {
  if (out.empty()) return;
  const uint64_t item = bits_of(tensor.dtype) / 8, count = out.size() / item;
  MS_CHECK(out.size() % item == 0 && first + count <= tensor.elements(), "elements ", first, " + ", count, " of ",
           tensor.elements());
  if (tensor.is_dense()) {
    return archive_.read(tensor.record, static_cast<int64_t>((tensor.offset + first) * item), out);
  }
  // Computes the position of each element. A part of a row that spans at most kScratch bytes is read at once.
  const size_t axes = tensor.shape.size();
  const uint64_t width = tensor.shape[axes - 1], step = tensor.stride[axes - 1];
  constexpr uint64_t kScratch = uint64_t{1} << 20;
  std::vector<std::byte> scratch;
  uint64_t done = 0;
  while (done < count) {
    uint64_t rest = (first + done) / width, at = tensor.offset;
    for (size_t axis = axes - 1; axis-- > 0; rest /= tensor.shape[axis]) {
      at += rest % tensor.shape[axis] * tensor.stride[axis];
    }
    const uint64_t column = (first + done) % width;
    const uint64_t at_once = step == 0 ? width : std::max<uint64_t>(1, kScratch / (step * item));
    const uint64_t taken = std::min({count - done, width - column, at_once});
    scratch.resize(((taken - 1) * step + 1) * item);
    archive_.read(tensor.record, static_cast<int64_t>((at + column * step) * item), scratch);
    for (uint64_t i = 0; i < taken; ++i) {
      std::memcpy(out.data() + (done + i) * item, scratch.data() + i * step * item, item);
    }
    done += taken;
  }
}

}  // namespace ms::convert
