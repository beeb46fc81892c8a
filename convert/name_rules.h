// Renames and selects tensors while a set of named tensors is read: --rename, --include, --exclude.
//
// Regular expressions are ECMAScript's (std::regex) and may match anywhere in a name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::convert {

struct NameRules {
  // REGEX=TEMPLATE, split at the last '='. Every match is replaced; $1, $2, .. are its groups, $& the whole match.
  // Rules apply in order, each to the result of the one before.
  std::vector<std::string> rename;
  std::vector<std::string> include;  // if not empty: only names that one of them matches, before renaming
  std::vector<std::string> exclude;  // not names that one of these matches

  bool empty() const { return rename.empty() && include.empty() && exclude.empty(); }
};

// Returns the source with changed names and without excluded tensors. Rules apply to the names of weights; optimizer
// state follows its weight. What was done is appended to `decisions`, including rules that had no effect.
//
// Throws kInvalidArgument for an invalid expression, two tensors renamed to one name, a name that becomes empty, and if
// no tensor is left; kUnsupported for names too long for std::regex, and for a source whose tensors have canonical
// names.
std::unique_ptr<ckpt::Source> with_names(std::unique_ptr<ckpt::Source> source, const NameRules& rules,
                                         std::vector<std::string>& decisions);

}  // namespace ms::convert
