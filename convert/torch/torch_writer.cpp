#include "convert/torch/torch_writer.h"

#include <array>
#include <cstring>

#include "convert/torch/torch_types.h"
#include "core/error.h"

namespace ms::convert {
namespace {

constexpr const char* kUtils = "torch._utils";

// Small records with fixed content, before and after the storages.
constexpr std::string_view kByteorder = "little", kVersion = "3\n";
constexpr size_t kPickleRecord = 0, kByteorderRecord = 1, kFirstStorage = 2;

}  // namespace

void write_torch_dtype(PickleWriter& pickle, SafetensorsDType dtype) {
  pickle.symbol("torch", torch_dtype_name(dtype));
}

void write_torch_tensor(PickleWriter& pickle, const TorchView& view) {
  const std::string_view type = torch_storage_name(view.dtype);
  const bool untyped = type.empty();  // the storage is untyped bytes; the tensor names its dtype
  std::vector<int64_t> stride(view.shape.size());
  int64_t step = 1;
  for (size_t axis = stride.size(); axis-- > 0; step *= std::max<int64_t>(1, view.shape[axis])) stride[axis] = step;
  pickle.call(kUtils, untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2", [&] {
    pickle.persistent([&] {
      pickle.tuple([&] {
        pickle.text("storage");
        pickle.symbol(untyped ? "torch.storage" : "torch", untyped ? "UntypedStorage" : type);
        pickle.text(std::to_string(view.storage));
        pickle.text("cpu");
        pickle.integer(view.storage_elements * (untyped ? static_cast<int64_t>(bits_of(view.dtype)) / 8 : 1));
      });
    });
    pickle.integer(view.first);
    pickle.integers(view.shape);
    pickle.integers(stride);
    pickle.boolean(false);  // requires_grad
    pickle.call("collections", "OrderedDict", [] {});
    if (untyped) write_torch_dtype(pickle, view.dtype);
  });
}

TorchWriter::TorchWriter(std::string pickle, std::span<const int64_t> storage_bytes) : pickle_(std::move(pickle)) {
  const std::string prefix = "archive/";
  layout_.add(prefix + "data.pkl", static_cast<int64_t>(pickle_.size()));
  layout_.add(prefix + "byteorder", static_cast<int64_t>(kByteorder.size()));
  for (size_t storage = 0; storage < storage_bytes.size(); ++storage) {
    layout_.add(core::cat(prefix, "data/", storage), storage_bytes[storage]);
    crcs_.emplace_back(storage_bytes[storage]);
  }
  layout_.add(prefix + "version", static_cast<int64_t>(kVersion.size()));
}

void TorchWriter::write(const Output& output, size_t storage, int64_t offset, std::span<const std::byte> bytes) {
  crcs_[storage].add(offset, bytes);
  output(bytes, place_of(storage, offset));
}

int64_t TorchWriter::place_of(size_t storage, int64_t offset) const {
  return layout_.records()[kFirstStorage + storage].at + offset;
}

void TorchWriter::finish(const Output& output) {
  const auto put = [&](std::string_view text, int64_t at) { output(std::as_bytes(std::span(text)), at); };
  std::vector<uint32_t> crcs;
  for (size_t r = 0; r < layout_.records().size(); ++r) {
    const ZipLayout::Record& record = layout_.records()[r];
    const size_t storage = r - kFirstStorage;  // index, if the record is a storage
    if (r >= kFirstStorage && storage < crcs_.size()) {
      crcs.push_back(crcs_[storage].value());
    } else {
      const std::string_view text = r == kPickleRecord      ? std::string_view(pickle_)
                                    : r == kByteorderRecord ? kByteorder
                                                            : kVersion;
      crcs.push_back(crc32(0, std::as_bytes(std::span(text))));
      put(text, record.at);
    }
    put(layout_.header(r, crcs.back()), record.header_at);
  }
  put(layout_.directory(crcs), layout_.directory_at());
}

std::string make_torch_archive(std::string pickle, std::span<const std::string> storages) {
  std::vector<int64_t> bytes;
  for (const std::string& storage : storages) bytes.push_back(static_cast<int64_t>(storage.size()));
  TorchWriter writer(std::move(pickle), bytes);
  std::string archive(static_cast<size_t>(writer.size_bytes()), '\0');
  const TorchWriter::Output output = [&](std::span<const std::byte> part, int64_t at) {
    std::memcpy(archive.data() + at, part.data(), part.size());
  };
  for (size_t s = 0; s < storages.size(); ++s) writer.write(output, s, 0, std::as_bytes(std::span(storages[s])));
  writer.finish(output);
  return archive;
}

}  // namespace ms::convert
