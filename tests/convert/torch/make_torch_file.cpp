// A program for torch_writer_test.py: writes a torch.save file with everything that our writer supports.
//
//   make_torch_file FILE             every element type, shapes, shared storages, values
//   make_torch_file FILE BYTES       one storage of that size, zeros except its last eight bytes
#include <array>
#include <cstring>
#include <iostream>
#include <string>

#include "convert/torch/torch_types.h"
#include "convert/torch/torch_writer.h"
#include "core/io/file.h"

namespace {

using namespace ms;
using convert::SafetensorsDType;

constexpr SafetensorsDType kTypes[] = {
    SafetensorsDType::kF32,    SafetensorsDType::kF16,  SafetensorsDType::kBF16, SafetensorsDType::kF64,
    SafetensorsDType::kI64,    SafetensorsDType::kI32,  SafetensorsDType::kI16,  SafetensorsDType::kI8,
    SafetensorsDType::kU8,     SafetensorsDType::kBool, SafetensorsDType::kC64,  SafetensorsDType::kF8E4M3,
    SafetensorsDType::kF8E5M2, SafetensorsDType::kU16,  SafetensorsDType::kU32,  SafetensorsDType::kU64};

std::string all_kinds() {
  std::vector<std::string> storages;
  const std::string pickle = convert::make_pickle([&](convert::PickleWriter& p) {
    storages.clear();
    p.dict([&] {
      for (const SafetensorsDType type : kTypes) {  // the bytes 0, 1, 0, 1, ..
        const auto item = static_cast<size_t>(convert::bits_of(type) / 8);
        std::string bytes(24 * item, '\0');
        for (size_t i = 1; i < bytes.size(); i += 2) bytes[i] = 1;
        p.text(convert::torch_dtype_name(type));
        convert::write_torch_tensor(
            p, {.dtype = type, .storage = storages.size(), .storage_elements = 24, .shape = {2, 3, 4}});
        p.text(std::string(convert::torch_dtype_name(type)) + " tail");  // of the same storage
        convert::write_torch_tensor(
            p, {.dtype = type, .storage = storages.size(), .storage_elements = 24, .first = 20, .shape = {4}});
        storages.push_back(std::move(bytes));
      }
      p.text("scalar");
      convert::write_torch_tensor(p, {.storage = storages.size(), .storage_elements = 1});
      storages.push_back(std::string("\0\0\x80\x3f", 4));
      p.text("empty");
      convert::write_torch_tensor(p, {.storage = storages.size(), .storage_elements = 0, .shape = {0, 5}});
      storages.emplace_back();
      p.text("values");
      p.list([&] {
        for (const int64_t value : {int64_t{3}, int64_t{-3}, int64_t{70000}, int64_t{1} << 40, -(int64_t{1} << 40)}) {
          p.integer(value);
        }
        p.real(1e-5);
        p.boolean(true);
        p.none();
        p.text("Größe");
        convert::write_torch_dtype(p, SafetensorsDType::kBF16);
        p.call("collections", "OrderedDict", [] {});
        p.set_items([&] {
          p.text("key");
          p.tuple([&] { p.text("value"); });
        });
      });
    });
  });
  return convert::make_torch_archive(pickle, storages);
}

void write_large(const std::string& path, int64_t bytes) {
  const std::string pickle = convert::make_pickle([&](convert::PickleWriter& p) {
    p.dict([&] {
      p.text("large");
      convert::write_torch_tensor(
          p, {.dtype = SafetensorsDType::kI64, .storage = 0, .storage_elements = bytes / 8, .shape = {bytes / 8}});
    });
  });
  convert::TorchWriter writer(pickle, std::array{bytes});
  const core::File file = core::File::create(path);
  const auto output = [&](std::span<const std::byte> part, int64_t at) { file.pwrite(part, at); };
  const int64_t last = 42;
  writer.write(output, 0, bytes - 8, std::as_bytes(std::span(&last, 1)));
  writer.finish(output);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) {
    write_large(argv[1], std::stoll(argv[2]));
  } else {
    const std::string archive = all_kinds();
    core::File::create(argv[1]).pwrite(std::as_bytes(std::span(archive)), 0);
  }
}
