// Names that fit into a column of a table, and still tell rows apart.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ms::profile {

// One text for each name, of at most `width` bytes where that can tell them apart. Equal names get equal texts,
// different names different ones.
//
// Names are made readable and their middle is cut out (table.h). Those that look alike then, as kernels of one template
// do, are cut around the place where they differ; if the difference lies in what readable_name drops, or in two places
// that are far apart, so that no cut shows it, the whole name is the text. width >= 16. O(bytes log n).
std::vector<std::string> distinct_short_names(const std::vector<std::string>& names, size_t width);

}  // namespace ms::profile
