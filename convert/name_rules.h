// Names changed and tensors left out while a set of named tensors is read: --rename, --include, --exclude.
//
// Regular expressions are ECMAScript's (std::regex) and are searched for anywhere in a name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::convert {

struct NameRules {
  // REGEX=TEMPLATE, split at the last '=': what the expression matches is replaced, wherever it does; $1, $2, .. are
  // its groups, $& the whole match. Applied one after the other, each to what the one before made.
  std::vector<std::string> rename;
  std::vector<std::string> include;  // if there are any, only names that one of them is found in; before renaming
  std::vector<std::string> exclude;  // not those that one of these is found in

  bool empty() const { return rename.empty() && include.empty() && exclude.empty(); }
};

// The same source under other names, without what is excluded. Rules are about the names of weights: optimizer state
// goes with its weight. What happened is appended to `decisions`, also that a rule had no effect.
//
// Throws kInvalidArgument: an expression that is none, two tensors renamed to one name, a name that becomes empty, no
// tensor left; kUnsupported for names too long for expressions, and for a source whose tensors have canonical names.
std::unique_ptr<ckpt::Source> with_names(std::unique_ptr<ckpt::Source> source, const NameRules& rules,
                                         std::vector<std::string>& decisions);

}  // namespace ms::convert
