#include "convert/tensor_file.h"

namespace ms::convert {
namespace {

class Safetensors final : public TensorFile {
 public:
  explicit Safetensors(const std::string& path) : reader_(path) {}
  const std::string& path() const override { return reader_.path(); }
  size_t size() const override { return reader_.header().size(); }
  Tensor operator[](size_t index) const override { return reader_.header()[index]; }
  std::optional<size_t> find(std::string_view name) const override { return reader_.header().find(name); }
  void read(uint64_t offset, std::span<std::byte> out) const override { reader_.read(offset, out); }

 private:
  SafetensorsReader reader_;
};

}  // namespace

std::unique_ptr<TensorFile> open_safetensors(const std::string& path) { return std::make_unique<Safetensors>(path); }

}  // namespace ms::convert
