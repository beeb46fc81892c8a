#include "profile/flight/plain_pickle.h"

#include <utility>

#include "core/error.h"
#include "core/io/json.h"
#include "core/io/pickle.h"
#include "core/printable.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::PickleKind;
using core::PickleValue;
using nlohmann::json;

constexpr int kMaxDepth = 32;
constexpr int64_t kMaxRepeats = 4;  // values of a file of n bytes: at most this times n

class Converter {
 public:
  Converter(std::string where, int64_t size_bytes) : where_(std::move(where)), left_(kMaxRepeats * size_bytes + 1000) {}

  json convert(PickleValue value, int depth = 0) {
    if (depth > kMaxDepth || --left_ < 0)
      throw Error(ErrorCode::kCorruptData, cat(where_, ": values are nested too deep, or repeated too often"));
    switch (value.kind()) {
      case PickleKind::kNone:
        return nullptr;
      case PickleKind::kBool:
        return value.boolean();
      case PickleKind::kInt:
        return value.integer();
      case PickleKind::kFloat:
        return value.real();
      case PickleKind::kString:
      case PickleKind::kBytes:
        return std::string(value.text());
      case PickleKind::kTuple:
      case PickleKind::kList:
      case PickleKind::kSet:
        return list(value, depth);
      case PickleKind::kDict:
        return dictionary(value, depth);
      case PickleKind::kCall:
        return call(value, depth);
      case PickleKind::kLong:
        return nullptr;  // no field of a dump has such numbers
      case PickleKind::kSymbol:
      case PickleKind::kPersistent:
        break;
    }
    refuse("an object");
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::kUnsupported,
                cat(where_, ": the pickle contains ", what, ", but a Flight Recorder's dump has plain values only"));
  }

  json list(PickleValue value, int depth) {
    json out = json::array();
    for (const PickleValue item : value.items()) out.push_back(convert(item, depth + 1));
    return out;
  }

  json dictionary(PickleValue value, int depth) {
    json out = json::object();
    for (const auto& [key, item] : value.pairs()) {
      if (!key.is(PickleKind::kString))
        throw Error(ErrorCode::kCorruptData, cat(where_, ": a dictionary has a key that is no text"));
      out[std::string(key.text())] = convert(item, depth + 1);
    }
    return out;
  }

  json call(PickleValue value, int depth) {
    constexpr const char* kModule = "torch.jit._pickle";
    for (const char* name : {"build_intlist", "build_boollist", "build_doublelist", "restore_type_tag"}) {
      if (value.is_call_of(kModule, name) && !value.arguments().empty())
        return convert(value.arguments().front(), depth + 1);
    }
    const PickleValue callee = value.callee();
    refuse(callee.is(PickleKind::kSymbol) ? cat("a call of ", core::printable(cat(callee.module(), ".", callee.text())))
                                          : std::string("a call"));
  }

  std::string where_;
  int64_t left_;
};

}  // namespace

json plain_pickle(std::string bytes, const std::string& where) {
  const auto size_bytes = static_cast<int64_t>(bytes.size());
  const core::Pickle pickle(std::move(bytes), where);
  return Converter(where, size_bytes).convert(pickle.root());
}

}  // namespace ms::profile
