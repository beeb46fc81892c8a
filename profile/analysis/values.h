// A container for the results of analysis sections: one value per type.
#pragma once

#include <map>
#include <memory>
#include <typeindex>
#include <utility>

#include "core/error.h"

namespace ms::profile {

class Values {
 public:
  template <class T>
  T& set(T value) {
    auto stored = std::make_shared<T>(std::move(value));
    T& out = *stored;
    by_type_[typeid(T)] = std::move(stored);
    return out;
  }
  // Adds the values of `other`, which must be of other types.
  void merge(Values other) { by_type_.merge(other.by_type_); }
  // Null if no section computed it, or its input was missing.
  template <class T>
  const T* get() const {
    const auto found = by_type_.find(typeid(T));
    return found == by_type_.end() ? nullptr : static_cast<const T*>(found->second.get());
  }
  // The value of a section that always produces one.
  template <class T>
  const T& at() const {
    const T* value = get<T>();
    MS_CHECK(value != nullptr, "no result of type ", typeid(T).name());
    return *value;
  }

 private:
  std::map<std::type_index, std::shared_ptr<void>> by_type_;
};

}  // namespace ms::profile
