// What a value of a pickle is asked for.
#include <bit>

#include "core/error.h"
#include "core/io/pickle.h"

namespace ms::core {
namespace {

bool is_text(PickleKind kind) {
  return kind == PickleKind::kString || kind == PickleKind::kBytes || kind == PickleKind::kLong;
}

[[noreturn]] void refuse(const Pickle& pickle, std::string_view wanted, PickleKind seen) {
  throw Error(ErrorCode::kCorruptData, cat(pickle.where(), ": expected ", wanted, ", found ", pickle_kind_name(seen)));
}

}  // namespace

std::string_view pickle_kind_name(PickleKind kind) {
  constexpr std::string_view kNames[] = {"None",     "a bool",   "an int",  "an int",         "a float",
                                         "a string", "bytes",    "a tuple", "a list",         "a dict",
                                         "a set",    "a symbol", "a call",  "a persistent id"};
  return kNames[static_cast<size_t>(kind)];
}

PickleKind PickleValue::kind() const { return pickle_->nodes_[id_].kind; }

bool PickleValue::boolean() const {
  if (!is(PickleKind::kBool)) refuse(*pickle_, "a bool", kind());
  return pickle_->nodes_[id_].number != 0;
}

int64_t PickleValue::integer() const {
  if (!is(PickleKind::kInt)) refuse(*pickle_, "a 64-bit int", kind());
  return static_cast<int64_t>(pickle_->nodes_[id_].number);
}

double PickleValue::real() const {
  if (is(PickleKind::kInt)) return static_cast<double>(integer());
  if (!is(PickleKind::kFloat)) refuse(*pickle_, "a number", kind());
  return std::bit_cast<double>(pickle_->nodes_[id_].number);
}

std::string_view PickleValue::text() const {
  if (is(PickleKind::kSymbol)) return pickle_->symbols_[static_cast<size_t>(pickle_->nodes_[id_].number)].name;
  if (!is_text(kind())) refuse(*pickle_, "a string", kind());
  return pickle_->text_of(id_);
}

std::string_view PickleValue::module() const {
  if (!is(PickleKind::kSymbol)) refuse(*pickle_, "a symbol", kind());
  const std::string_view module = pickle_->symbols_[static_cast<size_t>(pickle_->nodes_[id_].number)].module;
  if (module == "__builtin__") return "builtins";  // Python 2's module names, which protocol 2 keeps
  return module == "copy_reg" ? "copyreg" : module;
}

bool PickleValue::is_symbol(std::string_view wanted_module, std::string_view name) const {
  return is(PickleKind::kSymbol) && module() == wanted_module && text() == name;
}

std::vector<PickleValue> PickleValue::items() const {
  const PickleKind seen = kind();
  if (seen != PickleKind::kTuple && seen != PickleKind::kList && seen != PickleKind::kDict &&
      seen != PickleKind::kSet && seen != PickleKind::kCall && seen != PickleKind::kPersistent) {
    refuse(*pickle_, "a container", seen);
  }
  const Pickle::Node& node = pickle_->nodes_[id_];
  std::vector<PickleValue> items;
  items.reserve(node.size);
  for (uint32_t link = node.first; link != Pickle::kNothing; link = pickle_->links_[link].next) {
    items.push_back(PickleValue(pickle_, pickle_->links_[link].value));
  }
  return items;
}

std::vector<std::pair<PickleValue, PickleValue>> PickleValue::pairs() const {
  if (!is(PickleKind::kDict) && !is(PickleKind::kCall)) refuse(*pickle_, "a dict", kind());
  const std::vector<PickleValue> flat = items();
  if (flat.size() % 2 != 0) refuse(*pickle_, "a dict", kind());
  std::vector<std::pair<PickleValue, PickleValue>> pairs;
  for (size_t i = 0; i < flat.size(); i += 2) pairs.emplace_back(flat[i], flat[i + 1]);
  return pairs;
}

std::optional<PickleValue> PickleValue::find(std::string_view key) const {
  if (!is(PickleKind::kDict)) return std::nullopt;
  for (const auto& [name, value] : pairs()) {
    if (name.is(PickleKind::kString) && name.text() == key && !value.is(PickleKind::kNone)) return value;
  }
  return std::nullopt;
}

PickleValue PickleValue::callee() const {
  if (!is(PickleKind::kCall)) refuse(*pickle_, "a call", kind());
  return PickleValue(pickle_, pickle_->calls_[static_cast<size_t>(pickle_->nodes_[id_].number)].callee);
}

std::vector<PickleValue> PickleValue::arguments() const {
  if (!is(PickleKind::kCall)) refuse(*pickle_, "a call", kind());
  return PickleValue(pickle_, pickle_->calls_[static_cast<size_t>(pickle_->nodes_[id_].number)].arguments).items();
}

std::optional<PickleValue> PickleValue::state() const {
  if (!is(PickleKind::kCall)) refuse(*pickle_, "a call", kind());
  const uint32_t state = pickle_->calls_[static_cast<size_t>(pickle_->nodes_[id_].number)].state;
  return state == Pickle::kNothing ? std::nullopt : std::optional(PickleValue(pickle_, state));
}

bool PickleValue::is_call_of(std::string_view wanted_module, std::string_view name) const {
  return is(PickleKind::kCall) && callee().is_symbol(wanted_module, name);
}

}  // namespace ms::core
