#include "convert/torch/dcp_layout.h"

#include <algorithm>

#include "convert/torch/pickle_writer.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::Dims;

constexpr const char *kMetadataModule = "torch.distributed.checkpoint.metadata",
                     *kStorageModule = "torch.distributed.checkpoint.filesystem";
constexpr const char* kVersion = "1.0.0";  // of the .metadata format
// Archives of large tensors start at page boundaries, so that their data is page-aligned (zip_layout.h).
constexpr int64_t kAlignment = 64, kLargeAlignment = 4096, kLargeBytes = 64 << 10;

std::string tensor_pickle(SafetensorsDType dtype, const Dims& shape) {
  return make_pickle([&](PickleWriter& pickle) {
    write_torch_tensor(pickle, {.dtype = dtype, .storage_elements = core::num_elements(shape), .shape = shape});
  });
}

void write_size(PickleWriter& pickle, const Dims& size) {
  pickle.call("torch", "Size", [&] { pickle.integers(size); });
}

void write_properties(PickleWriter& pickle, SafetensorsDType dtype) {
  pickle.instance(kMetadataModule, "TensorProperties", [&] {
    pickle.tuple([&] {
      write_torch_dtype(pickle, dtype);
      pickle.call("torch.serialization", "_get_layout", [&] { pickle.text("torch.strided"); });
      pickle.boolean(false);                                                             // requires_grad
      pickle.call(kMetadataModule, "_MEM_FORMAT_ENCODING", [&] { pickle.integer(0); });  // contiguous
      pickle.boolean(false);                                                             // pin_memory
    });
  });
}

}  // namespace

int32_t DcpLayout::file_of_rank(int rank) {
  const auto [at, is_new] = file_of_rank_.emplace(rank, static_cast<int32_t>(files_.size()));
  if (!is_new) return at->second;
  names_.push_back(core::cat("__", rank, "_0.distcp"));
  ends_.push_back(0);
  files_.push_back({names_.back(), {}});
  return at->second;
}

DcpLayout::Payload DcpLayout::add_archive(int32_t file, Archive archive) {
  const bool large = std::any_of(archive.storage_bytes.begin(), archive.storage_bytes.end(),
                                 [](int64_t bytes) { return bytes >= kLargeBytes; });
  const int64_t alignment = large ? kLargeAlignment : kAlignment;
  int64_t& end = ends_[static_cast<size_t>(file)];
  archive.at = (end + alignment - 1) / alignment * alignment;
  const Payload payload{file, archive.at, TorchWriter(archive.pickle(), archive.storage_bytes).size_bytes()};
  end = payload.at + payload.bytes;
  files_[static_cast<size_t>(file)].archives.push_back(std::move(archive));
  return payload;
}

size_t DcpLayout::add_tensor(std::string key, SafetensorsDType dtype, Dims shape, DcpPath path) {
  has_paths_ = has_paths_ || !path.empty();
  tensors_.push_back({std::move(key), dtype, std::move(shape), std::move(path), {}});
  return tensors_.size() - 1;
}

ArchivePlace DcpLayout::add_chunk(size_t index, Dims offset, Dims extent, int32_t file, std::string contents) {
  Tensor& tensor = tensors_[index];
  const int64_t bytes = core::num_elements(extent) * static_cast<int64_t>(bits_of(tensor.dtype)) / 8;
  Archive archive{0, {bytes}, [dtype = tensor.dtype, extent] { return tensor_pickle(dtype, extent); }, {}};
  if (!contents.empty()) archive.contents.emplace_back(0, std::move(contents));
  const Payload payload = add_archive(file, std::move(archive));
  tensor.chunks.push_back({std::move(offset), std::move(extent), payload});
  const size_t archives = files_[static_cast<size_t>(file)].archives.size();
  return {file, static_cast<int32_t>(archives - 1), 0, 0, 0};
}

void DcpLayout::add_object(std::string key, std::string pickle, int32_t file, DcpPath path,
                           std::vector<std::string> storages) {
  Archive archive{0, {}, [text = std::move(pickle)] { return text; }, {}};
  for (std::string& bytes : storages) {
    const size_t storage = archive.storage_bytes.size();
    archive.storage_bytes.push_back(static_cast<int64_t>(bytes.size()));
    if (!bytes.empty()) archive.contents.emplace_back(storage, std::move(bytes));
  }
  const Payload payload = add_archive(file, std::move(archive));
  objects_.push_back({std::move(key), std::move(path), payload});
}

std::string DcpLayout::metadata() const {
  return make_pickle([&](PickleWriter& pickle) {
    const auto field = [&](std::string_view name) -> PickleWriter& {
      pickle.text(name);
      return pickle;
    };
    const auto entries = [&] {
      for (const Tensor& tensor : tensors_) {
        field(tensor.key).instance(kMetadataModule, "TensorStorageMetadata", [&] {
          pickle.dict([&] {
            field("properties");
            write_properties(pickle, tensor.dtype);
            field("size");
            write_size(pickle, tensor.shape);
            field("chunks").list([&] {
              for (const Chunk& chunk : tensor.chunks) {
                pickle.instance(kMetadataModule, "ChunkStorageMetadata", [&] {
                  pickle.dict([&] {
                    field("offsets");
                    write_size(pickle, chunk.offset);
                    field("sizes");
                    write_size(pickle, chunk.extent);
                  });
                });
              }
            });
          });
        });
      }
      for (const Object& object : objects_) {
        field(object.key).instance(kMetadataModule, "BytesStorageMetadata", [&] { pickle.dict([] {}); });
      }
    };
    const auto place = [&](const std::string& key, const Dims* offset, const Payload& payload) {
      pickle.instance(kMetadataModule, "MetadataIndex", [&] {
        pickle.dict([&] {
          field("fqn").text(key);
          if (offset != nullptr) write_size(field("offset"), *offset);
        });
      });
      pickle.instance(kStorageModule, "_StorageInfo", [&] {
        pickle.dict([&] {
          field("relative_path").text(names_[static_cast<size_t>(payload.file)]);
          field("offset").integer(payload.at);
          field("length").integer(payload.bytes);
        });
      });
    };
    const auto path = [&](const std::string& key, const DcpPath& steps) {
      field(key).tuple([&] {
        for (const auto& step : steps) {
          if (const auto* name = std::get_if<std::string>(&step)) {
            pickle.text(*name);
          } else {
            pickle.integer(std::get<int64_t>(step));
          }
        }
      });
    };
    pickle.instance(kMetadataModule, "Metadata", [&] {
      pickle.dict([&] {
        field("state_dict_metadata").dict(entries);
        if (has_paths_) {
          field("planner_data").dict([&] {
            for (const Tensor& tensor : tensors_) path(tensor.key, tensor.path);
            for (const Object& object : objects_) path(object.key, object.path);
          });
        } else {
          field("planner_data").none();
        }
        field("storage_data").dict([&] {
          for (const Tensor& tensor : tensors_) {
            for (const Chunk& chunk : tensor.chunks) place(tensor.key, &chunk.offset, chunk.payload);
          }
          for (const Object& object : objects_) place(object.key, nullptr, object.payload);
        });
        field("storage_meta").none();
        field("version").text(kVersion);
      });
    });
  });
}

}  // namespace ms::convert
