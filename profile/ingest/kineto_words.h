// What Kineto's categories mean, and how it calls types of elements (traces.md 4.2, 4.3).
#pragma once

#include <optional>
#include <string_view>

#include "profile/store.h"

namespace ms::profile {

// The side of a category, any case; nothing for one that is not known: then what the event carries decides.
std::optional<Side> side_of_category(std::string_view category);

// "Float" for "fp32", and back; what is not known stays as it is.
std::string_view kineto_dtype(std::string_view dtype);
std::string_view own_dtype(std::string_view dtype);

}  // namespace ms::profile
