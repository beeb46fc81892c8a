// Computes an identity of a conversion's inputs, so that a later attempt knows whether it would write the same bytes.
#pragma once

#include <string>

namespace ms::convert {

// Returns, for a file or all files of a folder, path, inode, size, and the times of the last change of contents and
// attributes, as digits. Does not read contents: a file that was rewritten, moved into place or touched counts as
// changed. Empty for a path that is absent or empty.
std::string identity_of(const std::string& path);

}  // namespace ms::convert
