#include "convert/torch/dcp_reader.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "convert/detail/printable.h"
#include "convert/torch/torch_types.h"
#include "core/error.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Dims;
using core::Error;
using core::ErrorCode;
using detail::printable;

constexpr const char* kMetadataName = ".metadata";
constexpr int64_t kMaxMetadataBytes = int64_t{2} << 30;
constexpr size_t kMaxOpenPayloads = 64;

std::string read_whole(const std::string& path) {
  const core::File file = core::File::open_read(path);
  if (file.size_bytes() > kMaxMetadataBytes) {
    throw Error(ErrorCode::kUnsupported, cat(path, ": ", file.size_bytes(), " bytes, more than ", kMaxMetadataBytes));
  }
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  file.pread(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

}  // namespace

bool is_dcp(const std::string& folder) { return fs::is_regular_file(fs::path(folder) / kMetadataName); }

// Parses .metadata into the reader's tables.
class DcpReader::Metadata {
 public:
  Metadata(DcpReader& reader, const std::string& path)
      : reader_(reader), where_(path), pickle_(read_whole(path), path) {}

  void read() {
    const PickleValue root = pickle_.root();
    if (!is_instance_of(root, "Metadata") && !is_instance_of(root, "MCoreMetadata")) {
      throw corrupt("not the metadata of a DCP checkpoint");
    }
    const auto fields = fields_of(root);
    read_places(field(fields, "storage_data", "Metadata"));
    for (const auto& [key, value] : pairs(field(fields, "state_dict_metadata", "Metadata"))) {
      read_entry(std::string(text(key)), value);
    }
    if (const auto planner = fields.find("planner_data"); planner != fields.end()) read_paths(planner->second);
    if (!places_.empty())
      throw corrupt(cat("a payload of ", name(places_.begin()->first), ", which is neither a tensor nor an object"));
    check_payloads();
  }

 private:
  using Fields = std::map<std::string_view, PickleValue>;
  using Place = std::pair<std::string, std::optional<Dims>>;  // key, offset of its box

  Error corrupt(const std::string& what) const { return Error(ErrorCode::kCorruptData, cat(where_, ": ", what)); }

  static std::string name(const Place& place) {
    return place.second ? cat(printable(place.first), " at ", *place.second) : printable(place.first);
  }

  PickleValue field(const Fields& fields, std::string_view name, const char* of) const {
    const auto found = fields.find(name);
    if (found == fields.end()) throw corrupt(cat("a ", of, " without ", name));
    return found->second;
  }
  std::vector<std::pair<PickleValue, PickleValue>> pairs(PickleValue value) const {
    if (!value.is(PickleKind::kDict)) throw corrupt("expected a dictionary");
    return value.pairs();
  }
  std::string_view text(PickleValue value) const {
    if (!value.is(PickleKind::kString)) throw corrupt("expected a name");
    return value.text();
  }
  int64_t count(PickleValue value) const {
    if (!value.is(PickleKind::kInt) || value.integer() < 0) throw corrupt("expected a count");
    return value.integer();
  }
  Dims dims(PickleValue value) const {
    const std::vector<uint64_t> size = parse_torch_size(value, where_);
    if (size.size() <= Dims::kMaxAxes) return Dims(size.begin(), size.end());
    throw Error(ErrorCode::kUnsupported,
                cat(where_, ": a tensor of ", size.size(), " axes; at most ", Dims::kMaxAxes, " can be read"));
  }

  void read_places(PickleValue storage_data) {
    for (const auto& [index, info] : pairs(storage_data)) {
      if (!is_instance_of(index, "MetadataIndex")) throw corrupt("a key of storage_data that is not a MetadataIndex");
      if (!is_instance_of(info, "_StorageInfo")) throw corrupt("a value of storage_data that is not a _StorageInfo");
      const Fields key = fields_of(index), place = fields_of(info);
      Place of{std::string(text(field(key, "fqn", "MetadataIndex"))), std::nullopt};
      const auto offset = key.find("offset");
      if (offset != key.end() && !offset->second.is(PickleKind::kNone)) of.second = dims(offset->second);
      const auto transforms = place.find("transform_descriptors");
      if (transforms != place.end() && !transforms->second.is(PickleKind::kNone) &&
          !transforms->second.items().empty()) {
        throw Error(ErrorCode::kUnsupported,
                    cat(where_, ": the payload of ", name(of), " is transformed (compressed?)"));
      }
      const Payload payload{file_of(text(field(place, "relative_path", "_StorageInfo"))),
                            count(field(place, "offset", "_StorageInfo")),
                            count(field(place, "length", "_StorageInfo"))};
      if (!places_.emplace(of, payload).second) throw corrupt(cat("two payloads of ", name(of)));
    }
  }

  // {key: ("model", "layers", 0, ..)}. Planners may store other entries there, which are skipped.
  void read_paths(PickleValue planner) {
    if (!planner.is(PickleKind::kDict)) return;
    for (const auto& [key, value] : planner.pairs()) {
      if (!key.is(PickleKind::kString) || !(value.is(PickleKind::kTuple) || value.is(PickleKind::kList))) continue;
      const std::string name(key.text());
      if (!reader_.tensors_.contains(name) && !reader_.objects_.contains(name)) continue;
      DcpPath path;
      for (const PickleValue step : value.items()) {
        if (step.is(PickleKind::kString)) path.emplace_back(std::string(step.text()));
        if (step.is(PickleKind::kInt)) path.emplace_back(step.integer());
      }
      if (path.size() == value.items().size() && !path.empty()) reader_.paths_.emplace(name, std::move(path));
    }
  }

  uint32_t file_of(std::string_view path) {
    const auto [at, is_new] = files_.emplace(path, static_cast<uint32_t>(files_.size()));
    if (is_new) {
      if (path.empty() || path == "." || path == ".." || path.find('/') != std::string_view::npos ||
          path.find('\0') != std::string_view::npos) {
        throw corrupt(cat("a payload in ", printable(path), ", which is not a plain file name"));
      }
      reader_.files_.push_back((fs::path(reader_.folder_) / path).string());
    }
    return at->second;
  }

  Payload take_place(const std::string& key, std::optional<Dims> offset) {
    const auto found = places_.find(Place{key, std::move(offset)});
    if (found == places_.end()) throw corrupt(cat("no payload for ", printable(key)));
    const Payload payload = found->second;
    places_.erase(found);
    return payload;
  }

  void read_entry(const std::string& key, PickleValue entry) {
    if (is_instance_of(entry, "BytesStorageMetadata")) {
      if (!reader_.objects_.emplace(key, take_place(key, std::nullopt)).second) {
        throw corrupt(cat("two objects are named ", printable(key)));
      }
      return;
    }
    if (!is_instance_of(entry, "TensorStorageMetadata")) {
      throw Error(ErrorCode::kUnsupported, cat(where_, ": ", printable(key), " is neither a tensor nor bytes"));
    }
    const Fields fields = fields_of(entry);
    Tensor tensor;
    tensor.dtype = dtype(key, field(fields, "properties", "TensorStorageMetadata"));
    tensor.shape = dims(field(fields, "size", "TensorStorageMetadata"));
    const int64_t elements = count_elements(key, tensor.shape);
    int64_t there = 0;
    const PickleValue chunks = field(fields, "chunks", "TensorStorageMetadata");
    if (!chunks.is(PickleKind::kList)) throw corrupt(cat(printable(key), ": its chunks are not a list"));
    for (const PickleValue item : chunks.items()) {
      const Fields box = fields_of(item);
      Chunk chunk;
      chunk.offset = dims(field(box, "offsets", "ChunkStorageMetadata"));
      chunk.extent = dims(field(box, "sizes", "ChunkStorageMetadata"));
      check_inside(key, tensor.shape, chunk);
      there += core::num_elements(chunk.extent);
      if (there > elements) break;
      chunk.payload = take_place(key, chunk.offset);
      tensor.chunks.push_back(std::move(chunk));
    }
    if (there != elements) {
      throw corrupt(cat(printable(key), ", of shape ", tensor.shape, ", has ", elements, " elements, but its boxes ",
                        there > elements ? "more: they overlap" : cat(there, ": parts are missing")));
    }
    if (!reader_.tensors_.emplace(key, std::move(tensor)).second) {
      throw corrupt(cat("two tensors are named ", printable(key)));
    }
  }

  SafetensorsDType dtype(const std::string& key, PickleValue properties) const {
    // The state is (dtype, layout, ..), or fields by name.
    const auto state = properties.is(PickleKind::kCall) ? properties.state() : std::nullopt;
    if (!state) throw corrupt(cat(printable(key), ": a tensor without properties"));
    std::optional<PickleValue> type;
    if (state->is(PickleKind::kTuple) && !state->items().empty()) type = state->items()[0];
    if (!type || !type->is(PickleKind::kSymbol)) type = field(fields_of(properties), "dtype", "TensorProperties");
    const auto found = parse_torch_dtype(*type);
    if (!found) {
      throw Error(ErrorCode::kUnsupported, cat(where_, ": ", printable(key), " has an unknown element type"));
    }
    return *found;
  }

  int64_t count_elements(const std::string& key, const Dims& shape) const {
    int64_t elements = 1;
    for (const int64_t size : shape) {
      if (__builtin_mul_overflow(elements, size, &elements) || elements > INT64_MAX / 16) {
        throw corrupt(cat(printable(key), ": its shape has too many elements to count"));
      }
    }
    return elements;
  }

  void check_inside(const std::string& key, const Dims& shape, const Chunk& chunk) const {
    bool inside = chunk.offset.size() == shape.size() && chunk.extent.size() == shape.size();
    for (size_t axis = 0; inside && axis < shape.size(); ++axis) {
      inside = chunk.extent[axis] <= shape[axis] && chunk.offset[axis] <= shape[axis] - chunk.extent[axis];
    }
    if (!inside) {
      throw corrupt(
          cat(printable(key), ": a box at ", chunk.offset, " of ", chunk.extent, " is not inside the shape ", shape));
    }
  }

  // Checks that payloads lie inside their files and do not overlap.
  void check_payloads() const {
    std::vector<Payload> all;
    for (const auto& [key, tensor] : reader_.tensors_) {
      for (const Chunk& chunk : tensor.chunks) all.push_back(chunk.payload);
    }
    for (const auto& [key, payload] : reader_.objects_) all.push_back(payload);
    std::sort(all.begin(), all.end(), [](const Payload& a, const Payload& b) {
      return std::tie(a.file, a.at, a.bytes) < std::tie(b.file, b.at, b.bytes);
    });
    int64_t size = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const Payload& payload = all[i];
      const bool first = i == 0 || all[i - 1].file != payload.file;
      if (first) size = core::File::open_read(reader_.files_[payload.file]).size_bytes();
      if (payload.bytes > size || payload.at > size - payload.bytes) {
        throw Error(ErrorCode::kCorruptData, cat(reader_.describe(payload), ": the file ends at ", size));
      }
      if (!first && all[i - 1].at + all[i - 1].bytes > payload.at) {
        throw corrupt(cat("payloads overlap: ", reader_.describe(payload), " begins inside the previous one"));
      }
    }
  }

  DcpReader& reader_;
  std::string where_;
  Pickle pickle_;
  std::map<std::string, uint32_t, std::less<>> files_;
  std::map<Place, Payload> places_;  // payloads not yet assigned to a box or object
};

struct DcpReader::Opened {
  Opened(ArchiveRange range, std::shared_ptr<RecordChecks> known) : file(std::move(range), std::move(known)) {}
  TorchFile file;
  TorchTensor tensor;
};

// The most recently used payloads, and the CRC checks of every payload that was opened.
struct DcpReader::Cache {
  using Key = std::pair<uint32_t, int64_t>;
  std::mutex mutex;
  std::list<std::pair<Key, std::shared_ptr<const Opened>>> opened;  // most recent first
  struct Checked {
    Payload payload;
    std::shared_ptr<RecordChecks> checks;
  };
  std::map<Key, Checked> checked;
  bool one_pass = false;
};

DcpReader::DcpReader(const std::string& folder) : folder_(folder), cache_(std::make_unique<Cache>()) {
  core::confine_reads(folder);
  Metadata(*this, (fs::path(folder) / kMetadataName).string()).read();
}

DcpReader::~DcpReader() = default;

std::string DcpReader::describe(const Payload& payload) const {
  return cat(files_[payload.file], ", bytes ", payload.at, " to ", payload.at + payload.bytes);
}

ArchiveRange DcpReader::range_of(const Payload& payload) const {
  ArchiveRange range = ArchiveRange::whole(files_[payload.file]);
  range.at = payload.at;
  range.bytes = payload.bytes;
  range.where = describe(payload);
  return range;
}

TorchFile DcpReader::open_object(const Payload& payload) const { return TorchFile(range_of(payload)); }

DcpReader::RawObject DcpReader::read_object(const Payload& payload, int64_t max_bytes) const {
  const ZipReader archive(range_of(payload));
  RawObject object;
  bool has_pickle = false;
  std::map<size_t, std::string> storages;  // by index
  for (size_t i = 0; i < archive.entries().size(); ++i) {
    const std::string_view name = archive.entries()[i].name;
    const std::string_view inner = name.substr(std::min(name.find('/'), name.size() - 1) + 1);
    if (inner == "data.pkl") {
      object.pickle = archive.read_all(i, max_bytes);
      has_pickle = true;
    } else if (inner.starts_with("data/")) {
      const std::string_view digits = inner.substr(5);
      size_t number = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (error != std::errc() || end != digits.data() + digits.size()) {
        throw Error(ErrorCode::kUnsupported, cat(describe(payload), ": a storage named ", printable(name)));
      }
      storages.emplace(number, archive.read_all(i, max_bytes));
    }
    max_bytes -= std::min(max_bytes, archive.entries()[i].bytes);
  }
  for (auto& [number, bytes] : storages) {
    if (number != object.storages.size()) {
      throw Error(ErrorCode::kUnsupported, cat(describe(payload), ": storages that are not numbered from 0"));
    }
    object.storages.push_back(std::move(bytes));
  }
  if (!has_pickle) throw Error(ErrorCode::kCorruptData, cat(describe(payload), ": an archive without data.pkl"));
  return object;
}

std::shared_ptr<const DcpReader::Opened> DcpReader::open(const Tensor& tensor, const Chunk& chunk) const {
  const Cache::Key key{chunk.payload.file, chunk.payload.at};
  std::shared_ptr<RecordChecks> checks;
  {
    std::lock_guard lock(cache_->mutex);
    const auto found =
        std::find_if(cache_->opened.begin(), cache_->opened.end(), [&](const auto& one) { return one.first == key; });
    if (found != cache_->opened.end()) {
      cache_->opened.splice(cache_->opened.begin(), cache_->opened, found);
      return found->second;
    }
    if (const auto known = cache_->checked.find(key); known != cache_->checked.end()) checks = known->second.checks;
  }
  auto opened = std::make_shared<Opened>(range_of(chunk.payload), checks);
  const auto view = opened->file.tensor(opened->file.root());
  const auto same = [](uint64_t seen, int64_t wanted) { return seen == static_cast<uint64_t>(wanted); };
  if (!view || view->dtype != tensor.dtype ||
      !std::equal(view->shape.begin(), view->shape.end(), chunk.extent.begin(), chunk.extent.end(), same)) {
    throw Error(ErrorCode::kCorruptData,
                cat(describe(chunk.payload), ": not the ", safetensors_dtype_name(tensor.dtype), " tensor of shape ",
                    chunk.extent, " that .metadata describes"));
  }
  opened->tensor = *view;
  std::unique_lock lock(cache_->mutex);
  const auto known = cache_->checked.emplace(key, Cache::Checked{chunk.payload, opened->file.checks()}).first;
  if (known->second.checks != opened->file.checks()) {  // another thread was first; use its checks, which add up the
                                                        // CRC
    lock.unlock();
    return open(tensor, chunk);
  }
  opened->file.checks()->set_one_pass(cache_->one_pass);
  cache_->opened.emplace_front(key, opened);
  if (cache_->opened.size() > kMaxOpenPayloads) cache_->opened.pop_back();
  return opened;
}

void DcpReader::read(const Tensor& tensor, const Chunk& chunk, const Dims& offset, const Dims& extent,
                     std::byte* out) const {
  read_box(tensor, chunk, offset, extent, out, true);
}

void DcpReader::peek(const Tensor& tensor, const Chunk& chunk, const Dims& offset, const Dims& extent,
                     std::byte* out) const {
  read_box(tensor, chunk, offset, extent, out, false);
}

void DcpReader::read_box(const Tensor& tensor, const Chunk& chunk, const Dims& offset, const Dims& extent,
                         std::byte* out, bool check) const {
  const size_t axes = chunk.extent.size();
  MS_CHECK(offset.size() == axes && extent.size() == axes, "rank of a box of ", describe(chunk.payload));
  if (core::num_elements(extent) == 0) return;
  const auto opened = open(tensor, chunk);
  const auto item = static_cast<int64_t>(bits_of(tensor.dtype) / 8);
  // A run covers the innermost axes that are read in full, and one more.
  size_t whole = axes;
  while (whole > 0 && extent[whole - 1] == chunk.extent[whole - 1]) --whole;
  const size_t outer = whole == 0 ? 0 : whole - 1;  // axes iterated over
  int64_t run = 1;
  for (size_t axis = outer; axis < axes; ++axis) run *= extent[axis];
  Dims at(outer, 0);
  for (bool more = true; more;) {
    int64_t first = 0;
    for (size_t axis = 0; axis < axes; ++axis) {
      first = first * chunk.extent[axis] + offset[axis] + (axis < outer ? at[axis] : 0);
    }
    const std::span bytes(out, static_cast<size_t>(run * item));
    if (check) {
      opened->file.read(opened->tensor, static_cast<uint64_t>(first), bytes);
    } else {
      opened->file.peek(opened->tensor, static_cast<uint64_t>(first), bytes);
    }
    out += run * item;
    more = false;
    for (size_t axis = outer; axis-- > 0 && !more;) {
      more = ++at[axis] < extent[axis];
      if (!more) at[axis] = 0;
    }
  }
}

void DcpReader::begin_one_pass() const {
  cache_->one_pass = true;
  for (const auto& [key, checked] : cache_->checked) checked.checks->set_one_pass(true);
}

void DcpReader::end_one_pass(bool all) const {
  cache_->one_pass = false;
  for (const auto& [key, checked] : cache_->checked) {
    checked.checks->set_one_pass(false);
    if (checked.checks->has_parts()) checked.checks->finish(TorchFile(range_of(checked.payload)).archive());
  }
  if (!all) return;
  for (const auto& [name, tensor] : tensors_) {
    for (const Chunk& chunk : tensor.chunks) {
      if (core::num_elements(chunk.extent) == 0) continue;
      const auto opened = open(tensor, chunk);
      opened->file.checks()->check(opened->file.archive(), opened->tensor.record);
    }
  }
}

}  // namespace ms::convert
