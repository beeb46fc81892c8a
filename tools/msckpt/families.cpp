#include "tools/msckpt/families.h"

#include <memory>
#include <string>

#include "ckpt/inspect.h"
#include "convert/family.h"
#include "core/error.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using nlohmann::json;

int run_families(bool as_json) {
  json list = json::array();
  std::string table;
  for (const convert::Family* family : convert::families()) {
    list.push_back(
        {{"model_type", family->model_type}, {"architecture", family->architecture}, {"about", family->about}});
    const std::string name(family->model_type);
    table += cat(name, std::string(name.size() < 14 ? 14 - name.size() : 1, ' '), family->about, "\n");
  }
  if (as_json) {
    print_json({{"schema", ckpt::kJsonSchema}, {"verb", "families"}, {"families", list}});
  } else {
    print(table);
  }
  return 0;
}

}  // namespace

Verb add_families(CLI::App& app) {
  const auto as_json = std::make_shared<bool>(false);
  CLI::App* verb = add_command(app, "families", "the families of Hugging Face models that convert knows", *as_json);
  return {verb, [as_json](const Process&) { return run_families(*as_json); }};
}

}  // namespace ms::tools::msckpt
