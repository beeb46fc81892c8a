// What Kineto's categories mean (traces.md 4.2).
#pragma once

#include <optional>
#include <string_view>

#include "profile/store.h"

namespace ms::profile {

// The side of a category, any case; nothing for one that is not known: then what the event carries decides.
std::optional<Side> side_of_category(std::string_view category);

}  // namespace ms::profile
