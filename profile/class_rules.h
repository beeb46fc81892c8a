// User rules for the class of a kernel (--class-rules), applied before the built-in ones. Libraries rename their
// kernels, and a breakdown that does not know the new names counts communication as computing.
//
//   [{"name": "^mycomm_", "class": "COMMUNICATION"}, {"name": "stage_copy", "class": "MEMORY"}]
//
// The first rule whose expression (expression.h, case-insensitive) matches a part of the name applies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ms::profile {

enum class DeviceClass : uint8_t { kComputation, kCommunication, kMemory };
inline constexpr int kNumDeviceClasses = 3;
std::string_view device_class_name(DeviceClass device_class);  // "COMPUTATION", ...

class ClassRules {
 public:
  // Throws kNotFound, kIo, or kCorruptData if the file is not such a list.
  explicit ClassRules(const std::string& path);
  std::optional<DeviceClass> find(std::string_view name) const;  // nullopt: no rule matches

 private:
  std::vector<std::pair<std::regex, DeviceClass>> rules_;
};

}  // namespace ms::profile
