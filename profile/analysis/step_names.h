// Which annotations of a trace are training iterations.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "profile/store.h"

namespace ms::profile {

// By NameId: whether annotations of this name are steps. The user's expression (RankTrace::step_annotation) decides,
// where there is one; else names are "ProfilerStep#N" or "iteration N".
std::vector<bool> step_names(const RankTrace& trace);

// The number of a step: that of its name, the first group of the user's expression, or nothing.
std::optional<int64_t> step_number(const RankTrace& trace, NameId name);

}  // namespace ms::profile
